"""The reference networks of `auto` for single networks: writes src/epochzero/objectives/reference.json.

    python benchmarks/reference.py
    python benchmarks/reference.py --sample nats_sss,resnet --networks 200 --store reference.db

Scores come from the files in docs/data, those of a space with the commonest batch and weights; and of spaces that are
to be sampled from a run now, on noise in batches of 64, which the store keeps. Run it again when a version of `auto`
gets another member: spaces that lack a score of it are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from random import Random
from typing import Any

from epochzero.engine import parse
from epochzero.engine.space_networks import batch_for
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.objectives.auto import VERSIONS
from epochzero.objectives.reference import FILE
from epochzero.registry import spaces
from epochzero.spaces.base import native_of
from epochzero.store import Store
from epochzero.study.task import Task
from epochzero.types import Score

BATCH_SIZE = 64
LEAST = 30
"""fewest networks of a space"""


SAMPLES = re.compile(r"-(\d+)-s\d+-")
"""the number of samples in the name of a batch of noise"""
Rows = list[dict[str, Score]]
"""of each network, by proxy"""


def from_files(folder: Path, names: list[str], networks: int) -> dict[str, tuple[Rows, int]]:
    """Returns the scores of random networks of each space in these files that has all proxies, and its batch size."""
    stored, found = read_stored([folder]), {}
    for space in stored.spaces:
        of = stored.of(space)
        if space not in spaces or not set(names) <= set(of):
            print(f"{space}: left out, no scores of {', '.join(set(names) - set(of)) or 'a known space'}")
            continue
        repeats = {name: max(of[name], key=lambda repeat: len(of[name][repeat])) for name in names}
        columns = {name: of[name][repeats[name]] for name in names}
        samples = [SAMPLES.search(batch) for batch, _ in repeats.values()]
        archs = sorted(set.intersection(*(set(column) for column in columns.values())))
        chosen = Random(0).sample(archs, min(networks, len(archs)))
        rows = [{name: column[arch] for name, column in columns.items()} for arch in chosen]
        found[space] = rows, max((int(size[1]) for size in samples if size), default=BATCH_SIZE)
    return found


def sampled(space: str, names: list[str], networks: int, store: Store) -> tuple[Rows, int]:
    """Returns the scores of random networks, which the store keeps, and the batch size."""
    task = Task(spaces[space], [parse(name) for name in names], batch_for(spaces[space], size=BATCH_SIZE))
    rng, found = Random(0), []
    run = store.begin_run("reference", {"space": space, "proxies": names}, {})
    archs = list(dict.fromkeys(task.space.sample(rng) for _ in range(networks)))
    for start in range(0, len(archs), 8):
        found += task.evaluate(archs[start : start + 8], store, run, start)[0]
        print(f"{space}: {len(found)} of {len(archs)}", flush=True)
    return found, BATCH_SIZE


def written(rows: Rows, space: str, names: list[str], batch_size: int) -> dict[str, Any]:
    native = native_of(spaces[space])
    assert native is not None
    scores = {n: [float(f"{row[n].value:.6g}") if row[n].ok else None for row in rows] for n in names}
    return {"input": list(native[0]), "batch_size": batch_size, "networks": len(rows), "scores": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=Path("docs/data"))
    parser.add_argument("--sample", default="", help="spaces to score now, separated by commas")
    parser.add_argument("--networks", type=int, default=200, help="of each space, at most")
    parser.add_argument("--store", default=":memory:")
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    names = list(dict.fromkeys(name for version in VERSIONS.values() for name in version.scores))
    with Store.open(asked.store) as store:
        made = {name: sampled(name, names, asked.networks, store) for name in filter(None, asked.sample.split(","))}
    made = from_files(asked.scores, names, asked.networks) | made
    kept = {name: written(rows, name, names, size) for name, (rows, size) in sorted(made.items()) if len(rows) >= LEAST}
    better = {name: parse(name).higher_is_better for name in names}
    file = {"higher_is_better": better, "spaces": kept}
    asked.out.write_text(json.dumps(file, separators=(",", ":")).replace('},"', '},\n"') + "\n", encoding="utf-8")
    print({name: one["networks"] for name, one in kept.items()}, asked.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
