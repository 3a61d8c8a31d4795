"""The figures of a benchmark: each proxy against each column, proxies against each other, and their ranking."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from epochzero.errors import DegenerateError
from epochzero.evaluate.sample import Sample
from epochzero.evaluate.scores import Progress, Scores
from epochzero.evaluate.time_left import Pace
from epochzero.objectives.objective import Objective
from epochzero.stats import Correlation, ProxyQuality, Unscored, paired_quality, proxy_quality
from epochzero.types import Score

T = TypeVar("T")

Merits = dict[str, list[list[Score]]]
"""by proxy or combination, how good it takes each network to be in each repeat [S][n]; higher is better"""


@dataclass(frozen=True)
class Rules:
    """How scores are compared with the truth."""

    seed: int = 0
    """of the bootstrap"""
    unscored: Unscored = "drop"
    top: tuple[int, ...] = (10,)
    """the k of regret and precision"""


@dataclass(frozen=True)
class BenchRow:
    """One proxy against one column of the table."""

    proxy: str
    target: str
    quality: ProxyQuality


@dataclass(frozen=True)
class BenchPair:
    """By how much one proxy's Spearman exceeds that of another on the same networks."""

    proxy: str
    versus: str
    target: str
    difference: Correlation | None
    why: str = ""
    """why there is no difference; empty where there is one"""

    @property
    def apart(self) -> bool:
        """Whether the interval leaves 0 out: this sample tells the two from each other."""
        return self.difference is not None and not self.difference.low <= 0 <= self.difference.high


@dataclass(frozen=True)
class Place:
    """Where a proxy stands among those compared on one column; the first has the highest Spearman."""

    place: int
    row: BenchRow
    behind: BenchPair | None
    """its difference from the first; None for the first, and where there is no correlation"""

    @property
    def level(self) -> bool:
        """Whether it is the first, or this sample does not tell it from the first."""
        if self.row.quality.spearman is None:
            return False
        return self.behind is None or (self.behind.difference is not None and not self.behind.apart)


@dataclass(frozen=True)
class Figures:
    """All that is measured on one sample."""

    rows: list[BenchRow]
    pairs: list[BenchPair]
    """every other proxy against the one that was named to compare with"""
    ranking: dict[str, list[Place]]
    """by target"""


def merits_of(objective: Objective, scores: Scores) -> list[Score]:
    """Each network's merit, higher is better, or why it has none."""
    networks = [dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]
    merits = objective.merits(networks)
    pairs = zip(networks, merits, strict=True)
    return [Score.degenerate(objective.why_not(one)) if merit is None else Score(merit) for one, merit in pairs]


def figures_of(
    samples: Sequence[Sample], merits: Sequence[Merits], versus: str | None, rules: Rules, progress: Progress
) -> list[Figures]:
    """For each sample, every proxy against every target, against the one named and against the best."""
    sizes = [(len(of), len(sample.truths)) for sample, of in zip(samples, merits, strict=True)]
    comparisons = 1 if versus is None else 2
    told = _Told(
        {
            "row": sum(proxies * targets for proxies, targets in sizes),
            "pair": sum((proxies - 1) * targets * comparisons for proxies, targets in sizes),
        },
        progress,
    )
    figures = []
    for sample, of in zip(samples, merits, strict=True):
        judge = _Judge(sample, of, rules, told)
        rows = [judge.row(proxy, target) for proxy, target in product(of, sample.truths)]
        others = () if versus is None else product((name for name in of if name != versus), sample.truths)
        pairs = [judge.pair(name, str(versus), target) for name, target in others]
        ranking = {target: judge.ranking([row for row in rows if row.target == target]) for target in sample.truths}
        figures.append(Figures(rows, pairs, ranking))
    return figures


class _Told:
    """Work that is counted and timed while it is done."""

    def __init__(self, amounts: dict[str, int], progress: Progress) -> None:
        self._pace, self._progress = Pace(amounts), progress
        self._done, self._total = 0, sum(amounts.values())

    def do(self, kind: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self._done += 1
        self._pace.add(kind, 1, time.perf_counter() - start)
        self._progress(self._done, self._total, f"figures, {self._pace.text}")
        return result


@dataclass(frozen=True)
class _Judge:
    """Compares merits with the truths of one sample."""

    sample: Sample
    merits: Merits
    rules: Rules
    told: _Told

    def row(self, proxy: str, target: str) -> BenchRow:
        return self.told.do("row", lambda: BenchRow(proxy, target, self._quality(proxy, target)))

    def _quality(self, proxy: str, target: str) -> ProxyQuality:
        return proxy_quality(
            self.merits[proxy],
            self.sample.truths[target],
            True,
            unscored=self.rules.unscored,
            params=self.sample.sizes.get("params"),
            flops=self.sample.sizes.get("flops"),
            top=self.rules.top,
            seed=self.rules.seed,
        )

    def pair(self, proxy: str, versus: str, target: str) -> BenchPair:
        return self.told.do("pair", lambda: self._pair(proxy, versus, target))

    def _pair(self, proxy: str, versus: str, target: str) -> BenchPair:
        first, second, truth = self.merits[proxy], self.merits[versus], self.sample.truths[target]
        try:
            difference = paired_quality(first, second, truth, unscored=self.rules.unscored, seed=self.rules.seed)
        except DegenerateError as error:
            return BenchPair(proxy, versus, target, None, str(error))
        return BenchPair(proxy, versus, target, difference)

    def ranking(self, rows: Sequence[BenchRow]) -> list[Place]:
        """The proxies of one target in the order of their Spearman, those without one last."""
        first, *others = sorted(rows, key=_spearman, reverse=True)
        return [
            Place(1, first, None),
            *(Place(place, row, self._behind(row, first)) for place, row in enumerate(others, 2)),
        ]

    def _behind(self, row: BenchRow, first: BenchRow) -> BenchPair | None:
        return None if row.quality.spearman is None else self.pair(row.proxy, first.proxy, row.target)


def _spearman(row: BenchRow) -> float:
    return -2.0 if row.quality.spearman is None else row.quality.spearman
