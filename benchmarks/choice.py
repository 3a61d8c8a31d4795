"""What the choice of `auto` is worth on a space that it has not seen: the same choice, made without each space.

    python benchmarks/choice.py ../shared/data --markdown docs/choice.md

The members of `auto:1` were chosen on all tables. Here a fixed procedure, with no hand in it, chooses members from the
stored scores by the accuracies of all other spaces, and is measured on the one left out. Its sets have at most k scores
with equal weights, at most 3 forward passes together, and no two that correlate by more than .9 in the mean; all of
them are tried, and the one with the largest mean + worst correlation wins. As in `auto`, ranks count as normal scores,
and FLOPs take the place of a score that does not apply to a table. While choosing, correlations are those of normal
scores, and a network that lacks a score is the worst.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from epochzero.engine import parse
from epochzero.engine.passes import merged
from epochzero.engine.proxy import Proxy, split_list
from epochzero.engine.reads import NEED_FORWARD
from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.boards import Board, Repeats, boards_of, targets_of
from epochzero.evaluate.leaderboard.page import markdown_table
from epochzero.evaluate.leaderboard.standings import Contestant, Row, Rules, proxy_contestant, standings
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.evaluate.results import interval
from epochzero.objectives.auto import Member, Version
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.objectives.ranks import NEARLY_ALL
from epochzero.stats.bootstrap import Floats
from epochzero.stats.text import short
from epochzero.study.methods.guided import normal_scores

PASSES = 3
"""most forward passes of a set"""
ALIKE = 0.9
"""largest mean correlation of two members"""
FLOPS = "flops"
HINDSIGHT = "hindsight"
Members = tuple[str, ...]


@dataclass(frozen=True)
class Combination(Objective):
    """An objective like `auto`, with members of its own."""

    own: Version | None = None

    @property
    def made_of(self) -> Version | None:
        return self.own

    @staticmethod
    def of(members: Members) -> Combination:
        own = Version(tuple(Member(1.0, tuple(dict.fromkeys((name, FLOPS)))) for name in members))
        return Combination(tuple(map(parse, own.scores)), own.method, own=own)


class Variant(NamedTuple):
    """A form of the procedure."""

    least: int
    most: int
    """numbers of members"""
    by_space: bool = False
    """true: means of spaces count, not tables"""
    worst: float = 1.0
    """weight of the worst beside the mean"""

    @property
    def name(self) -> str:
        size = f"{self.least}" if self.least == self.most else f"up to {self.most}"
        return f"{size}{', by space' * self.by_space}{', by mean' * (self.worst == 0)}"


VARIANTS = (
    Variant(1, 1),
    Variant(1, 3),
    *(Variant(least, 5, by_space, worst) for worst in (1.0, 0.0) for by_space in (False, True) for least in (1, 5)),
)
SHOWN = 4
"""variants in the large table, the first ones"""


class Procedure:
    """The choice of members; every set's correlation with every table is computed once."""

    def __init__(self, boards: Sequence[Board], proxies: Sequence[Proxy], most: int) -> None:
        self.names = [one.text for one in proxies]
        self.spaces = [board.space for board in boards]
        columns = [np.array([column(board, one) for one in proxies]) for board in boards]  # [K, n] each
        alike = [z @ z.T / z.shape[1] for z in columns]
        right = [z @ unit(board.truth) / z.shape[1] for z, board in zip(columns, boards, strict=True)]
        self.alike = np.array(alike)  # [boards, K, K]
        needs = [
            {run for run, reads in merged(one.needs).items() if {n for n, _ in reads} & NEED_FORWARD} for one in proxies
        ]
        every = list(set().union(*needs))
        runs = np.array([[run in own for run in every] for own in needs])  # [K, passes]
        self.sets: list[np.ndarray] = []
        """of each size, members [M, size]"""
        self.rhos: list[Floats] = []
        """correlation of each set with accuracy [boards, M]"""
        for size in range(1, min(most, len(proxies)) + 1):
            found = np.array(list(combinations(range(len(proxies)), size)))
            found = found[runs[found].any(1).sum(1) <= PASSES]
            spread = [np.sqrt(np.maximum(c[found[:, :, None], found[:, None, :]].sum((1, 2)), 1e-9)) for c in alike]
            self.sets.append(found)
            self.rhos.append(np.array([r[found].sum(1) / wide for r, wide in zip(right, spread, strict=True)]))

    def best(self, variant: Variant, without: str) -> Members:
        """Returns the best set by the tables of all spaces but this one."""
        kept = [i for i, space in enumerate(self.spaces) if space != without]
        unlike = np.abs(self.alike[kept].mean(0)) <= ALIKE + np.eye(len(self.names))
        best, chosen = -np.inf, Members()
        sizes = list(zip(self.sets, self.rhos, strict=True))[min(variant.least, len(self.sets)) - 1 : variant.most]
        for found, rhos in sizes:
            merit = self._merit(rhos[kept], [self.spaces[i] for i in kept], variant)
            merit[~unlike[found[:, :, None], found[:, None, :]].all((1, 2))] = -np.inf
            if merit.max() > best + 1e-9:  # of equals the smaller set
                best, chosen = merit.max(), tuple(self.names[k] for k in found[merit.argmax()])
        return chosen

    def _merit(self, rows: Floats, spaces: Sequence[str], variant: Variant) -> Floats:
        """Mean and worst of each set [M]."""
        if variant.by_space:
            of = np.array(spaces)
            rows = np.array([rows[of == space].mean(0) for space in dict.fromkeys(spaces)])
        return np.asarray(rows.mean(0) + variant.worst * rows.min(0))


def column(board: Board, proxy: Proxy) -> Floats:
    """Normal scores of a proxy's merits with variance 1; those of FLOPs where it does not apply."""
    rows = board.merits(Objective((proxy,)))
    assert rows is not None
    there = [score.value for score in rows[0] if score.ok]
    if proxy.text != FLOPS and (len(there) < NEARLY_ALL * len(rows[0]) or len(set(there)) < 2):
        return column(board, parse(FLOPS))
    return unit(np.array([score.value if score.ok else -np.inf for score in rows[0]]))


def unit(values: Floats) -> Floats:
    scores = normal_scores(values)
    return np.asarray(scores / (scores.std() or 1.0))


def candidates(boards: Sequence[Board], names: str | None) -> list[Proxy]:
    """Those of the named proxies, or of all stored ones, that need few ordinary passes and were run on every table."""
    found = []
    for name in split_list(names) if names else dict.fromkeys(name for board in boards for name in board.scores):
        try:
            proxy = parse(name)
        except UserError:
            continue
        if proxy.quick and all(name in board.scores for board in boards):
            found.append(proxy)
    if not found or len({board.space for board in boards}) < 2:
        raise UserError("A choice needs tables of two spaces, and proxies that were run on all of them.")
    return found


def contestants(
    boards: Sequence[Board], procedure: Procedure
) -> tuple[dict[str, Contestant], dict[tuple[str, str], Members]]:
    """Returns who is compared, and the members by variant and space left out; by "hindsight" those of all spaces."""
    found: dict[str, Contestant] = {}
    chosen: dict[tuple[str, str], Members] = {}
    for variant in VARIANTS:
        for space in (*dict.fromkeys(board.space for board in boards), HINDSIGHT):
            chosen[variant.name, space] = procedure.best(variant, space)
        found[variant.name] = left_out(variant.name, chosen)
        found[f"{variant.name}, hindsight"] = proxy_contestant(Combination.of(chosen[variant.name, HINDSIGHT]))
    fixed = {name: parse_objective(name) for name in ("auto", FLOPS)}
    return found | {one.text: proxy_contestant(one) for one in fixed.values()}, chosen


def left_out(variant: str, chosen: Mapping[tuple[str, str], Members]) -> Contestant:
    def merits(board: Board) -> Repeats | None:
        return board.merits(Combination.of(chosen[variant, board.space]))

    return merits


def page(boards: Sequence[Board], rows: Sequence[Row], chosen: Mapping[tuple[str, str], Members], about: str) -> str:
    by = {row.name: row for row in rows}
    variants = [variant.name for variant in VARIANTS]
    fixed = sorted(name for name in by if name in (FLOPS, parse_objective("auto").text))
    shown = [*variants[:SHOWN], *fixed]
    figures = [
        ["", "networks", *variants[:SHOWN], *(f"`{name}`" for name in fixed)],
        *([board.name, f"{len(board.archs):,}", *(_cell(by[name], board.name) for name in shown)] for board in boards),
        ["**mean**", "", *(interval(by[name].mean) for name in shown)],
        ["**worst**", "", *(interval(by[name].worst) for name in shown)],
        ["mean of spaces", "", *(short(by[name].by_space) for name in shown)],
        ["worst difference from FLOPs", "", *(short(by[name].versus_flops or 0.0) for name in shown)],
    ]
    every = [
        [name, *(short(figure) for of in (name, f"{name}, {HINDSIGHT}") for figure in _summary(by[of]))]
        for name in variants
    ] + [[f"`{name}`", *map(short, _summary(by[name]))] + [""] * 3 for name in fixed]
    heads = ["mean", "worst", "mean of spaces"]
    every_heads = ["members", *heads, *(f"{head}, chosen on all" for head in heads)]
    parts = [
        "# The choice of `auto`, without each space",
        (__doc__ or "").split("\n\n", 2)[2].strip(),
        about,
        f"## {len(boards)} tables of {len({board.space for board in boards})} spaces",
        "Spearman with 95 % intervals by bootstrap over networks, as on [the leaderboard](leaderboard.md).",
        markdown_table(figures[0], figures[1:]),
        "## All forms of the procedure",
        "*by mean*: the largest mean wins, whatever the worst; *by space*: means and worst are those of spaces, which\n"
        "count once each. *chosen on all*: the same procedure with every accuracy known, which is no honest figure.",
        markdown_table(every_heads, every),
        "## Chosen",
        "\n".join(_choices(chosen, variants[:SHOWN])),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(row: Row) -> tuple[float, float, float]:
    return row.mean.value, row.worst.value, row.by_space


def _cell(row: Row, board: str) -> str:
    result = row.results.get(board)
    estimate = result and result.figures["spearman"].estimate
    return interval(estimate) if estimate else "no score"


def _choices(chosen: Mapping[tuple[str, str], Members], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        own = {space: members for (variant, space), members in chosen.items() if variant == name}
        told = (
            f"{', '.join(f'`{member}`' for member in members)} ({_without(space)})" for space, members in own.items()
        )
        yield f"- {name}: {'; '.join(told)}"


def _without(space: str) -> str:
    return "on all" if space == HINDSIGHT else f"without {space}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="a folder of accuracy tables, or SPACE=FILE:COLUMN")
    parser.add_argument("--scores", type=Path, nargs="+", default=[Path("docs/data")])
    parser.add_argument("--candidates", help="proxies, separated by commas; default: all stored ones")
    parser.add_argument("--networks", type=int, default=400, help="of each table, at most")
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--markdown", type=Path, help="page to write")
    asked = parser.parse_args()
    boards = boards_of(targets_of(asked.tables), read_stored(asked.scores), asked.networks)
    proxies = candidates(boards, asked.candidates)
    procedure = Procedure(boards, proxies, max(variant.most for variant in VARIANTS))
    compared, chosen = contestants(boards, procedure)
    rows = standings(boards, compared, Rules(asked.resamples, full=False))
    words = [word if word.startswith("docs/") else Path(word).name for word in sys.argv[1:]]
    command = f"python benchmarks/choice.py {shlex.join(words)}"
    listed = ", ".join(f"`{one.text}`" for one in proxies)
    text = page(boards, rows, chosen, f"Candidates: {listed}.\n\n```text\n{command}\n```")
    print(text)
    if asked.markdown:
        asked.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
