"""The worth of the constants of the search `guided` on a space that they were not chosen on.

    python benchmarks/guided_constants.py ../shared/data --without nb201 --markdown docs/guided-constants.md

Each constant of the model is halved and doubled, and the list of proxies is shortened. On every table `guided` searches
as in `benchmarks/guided.py`, without evidence of the space, among at most 1,000 networks; its regret counts as a share
of that of random search with equally many evaluations, and the tables of a space have equal shares. *Left out*: the
variant with the least mean share on all other spaces, measured on the one left out.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any
from unittest.mock import patch

import guided as bench
from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.study.methods import guided

MOST = 1000
"""networks of a table that are searched"""
DEFAULT = "as it is"
NAMES = ("UNKNOWN", "WEIGHT_OF_UNKNOWN", "LOCAL", "OWN")
VARIANTS: dict[str, tuple[Mapping[str, float], str]] = {
    DEFAULT: ({}, ""),
    **{f"{name} x {factor:g}": ({name: factor * getattr(guided, name)}, "") for name in NAMES for factor in (0.5, 2.0)},
    "counts alone": ({}, ",".join(bench.COUNTED)),
    "without az": ({}, ",".join(name for name in guided.PROXIES.split(",") if not name.startswith("az_"))),
}
"""constants that differ, and proxies, those of the search if empty"""


@contextmanager
def changed(name: str) -> Iterator[dict[str, Any]]:
    """Gives the options of a variant while its constants are set."""
    constants, proxies = VARIANTS[name]
    with ExitStack() as stack:
        for constant, value in constants.items():
            stack.enter_context(patch.object(guided, constant, value))
        yield {"proxies": proxies} if proxies else {}


def fewer(table: bench.Table) -> bench.Table:
    """At most MOST of its networks, the same ones each time."""
    kept = sorted(Random(0).sample(range(len(table.archs)), min(MOST, len(table.archs))))
    scores = {name: column[kept] for name, column in table.scores.items()}
    return table._replace(
        archs=[table.archs[i] for i in kept], scores=scores, final=table.final[kept], told=table.told[kept]
    )


def regret(table: bench.Table, method: str, options: dict[str, Any], seeds: int, evaluations: int) -> float:
    make = bench.maker_of(table, method, options)
    assert make is not None
    return mean(bench.searched(table, make, seed, evaluations) for seed in range(seeds))


def shares(tables: Sequence[bench.Table], seeds: int, evaluations: int) -> dict[str, dict[str, float]]:
    """Returns the share of random's regret by variant and space, the mean over its tables."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in VARIANTS}
    for table in tables:
        try:
            by_chance = regret(table, "random", {}, seeds, evaluations)
        except UserError as error:
            print(f"{table.entry.name}: {error}", file=sys.stderr)
            continue
        for name in VARIANTS:
            with changed(name) as options:
                share = regret(table, "guided", options, seeds, evaluations) / by_chance
            found[name].setdefault(bench.space_of(table), []).append(share)
            print(f"{table.entry.name:22} {name:24} {share:.3f}", flush=True)
    return {name: {space: mean(own) for space, own in by.items()} for name, by in found.items()}


def left_out(found: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Returns by space the best variant on all others."""
    spaces = list(found[DEFAULT])
    return {
        space: min(found, key=lambda name: mean(found[name][other] for other in spaces if other != space))
        for space in spaces
    }


def page(found: Mapping[str, Mapping[str, float]], command: str) -> str:
    spaces, chosen = list(found[DEFAULT]), left_out(found)
    heads = ["", *spaces, "mean"]
    rows = [[name, *(f"{by[space]:.2f}" for space in spaces), f"{mean(by.values()):.2f}"] for name, by in found.items()]
    own = {space: found[chosen[space]][space] for space in spaces}
    rows.append(["**left out**", *(f"{own[space]:.2f}" for space in spaces), f"{mean(own.values()):.2f}"])
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    told = "; ".join(f"{space}: {name}" for space, name in chosen.items())
    about = (__doc__ or "").split("\n\n", 2)[2].strip()
    title = "# The constants of `guided`"
    return "\n\n".join([title, about, f"```text\n{command}\n```", "\n".join(lines), f"Left out: {told}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="accuracy tables")
    parser.add_argument("--scores", type=Path, nargs="+", default=[Path("docs/data")])
    parser.add_argument("--without", default="", help="spaces whose tables are left out, separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--markdown", type=Path, help="page to write")
    given = parser.parse_args()
    stored = read_stored(given.scores)
    entries = [entry for entry in bench.TABLES if entry.name.split()[0] not in given.without.split(",")]
    read = (bench.read(entry, given.folder, stored) for entry in entries)
    tables = [fewer(table) for table in read if table is not None and len(table.archs) >= bench.SEARCHED]
    words = [word if word.startswith("docs/") else Path(word).name for word in sys.argv[1:]]
    command = f"python benchmarks/guided_constants.py {shlex.join(words)}"
    text = page(shares(tables, given.seeds, given.evaluations), command)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
