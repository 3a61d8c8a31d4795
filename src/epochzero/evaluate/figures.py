"""The figures of a benchmark: each proxy against each column, proxies against each other, and their ranking."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from epochzero.errors import DegenerateError
from epochzero.evaluate.sample import Sample
from epochzero.evaluate.scores import Scores
from epochzero.evaluate.time_left import TimeLeft
from epochzero.objectives.objective import Objective
from epochzero.progress import Progress
from epochzero.stats import Correlation, ProxyQuality, Unscored, paired_quality, proxy_quality
from epochzero.types import Score

T = TypeVar("T")

Merits = dict[str, list[list[Score]]]
"""by proxy or combination, the merit of each network in each repeat [S][n]; higher is better"""


@dataclass(frozen=True)
class Rules:
    """Settings of the comparison of scores with accuracies."""

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
    """The difference between one proxy's Spearman and another's on the same networks."""

    proxy: str
    versus: str
    target: str
    difference: Correlation | None
    why: str = ""
    """the reason if there is no difference"""

    @property
    def significant(self) -> bool:
        """True if the interval excludes 0."""
        return self.difference is not None and not self.difference.low <= 0 <= self.difference.high


@dataclass(frozen=True)
class Place:
    """A proxy's place on one column; the first has the highest Spearman."""

    place: int
    row: BenchRow
    behind: BenchPair | None
    """difference from the first; None for the first, and without a correlation"""

    @property
    def ties_with_first(self) -> bool:
        """True for the first, and for proxies that do not differ significantly from it on this sample."""
        if self.row.quality.spearman is None:
            return False
        return self.behind is None or (self.behind.difference is not None and not self.behind.significant)


@dataclass(frozen=True)
class Figures:
    """All statistics of one sample."""

    rows: list[BenchRow]
    pairs: list[BenchPair]
    """all other proxies compared with `versus`"""
    ranking: dict[str, list[Place]]
    """by target"""


def merits_of(objective: Objective, scores: Scores) -> list[Score]:
    """Each network's merit, higher is better, or the reason why it has none."""
    networks = [dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]
    merits = objective.merits(networks)
    pairs = zip(networks, merits, strict=True)
    return [Score.degenerate(objective.why_not(one)) if merit is None else Score(merit) for one, merit in pairs]


def figures_of(
    samples: Sequence[Sample], merits: Sequence[Merits], versus: str | None, rules: Rules, progress: Progress
) -> list[Figures]:
    """For each sample, every proxy against every target, compared with `versus` and with the best."""
    sizes = [(len(of), len(sample.truths)) for sample, of in zip(samples, merits, strict=True)]
    comparisons = 1 if versus is None else 2
    work = _TimedWork(
        {
            "row": sum(proxies * targets for proxies, targets in sizes),
            "pair": sum((proxies - 1) * targets * comparisons for proxies, targets in sizes),
        },
        progress,
    )
    figures = []
    for sample, of in zip(samples, merits, strict=True):
        judge = _Judge(sample, of, rules, work)
        rows = [judge.row(proxy, target) for proxy, target in product(of, sample.truths)]
        others = () if versus is None else product((name for name in of if name != versus), sample.truths)
        pairs = [judge.pair(name, str(versus), target) for name, target in others]
        ranking = {target: judge.ranking([row for row in rows if row.target == target]) for target in sample.truths}
        figures.append(Figures(rows, pairs, ranking))
    return figures


class _TimedWork:
    """Runs pieces of work, and reports progress with the time left."""

    def __init__(self, amounts: dict[str, int], progress: Progress) -> None:
        self._time_left, self._progress = TimeLeft(amounts), progress
        self._done, self._total = 0, sum(amounts.values())

    def do(self, kind: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self._done += 1
        self._time_left.add(kind, 1, time.perf_counter() - start)
        self._progress(self._done, self._total, f"figures, {self._time_left.text}")
        return result


@dataclass(frozen=True)
class _Judge:
    """Compares merits with the truths of one sample."""

    sample: Sample
    merits: Merits
    rules: Rules
    work: _TimedWork

    def row(self, proxy: str, target: str) -> BenchRow:
        return self.work.do("row", lambda: BenchRow(proxy, target, self._quality(proxy, target)))

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
        return self.work.do("pair", lambda: self._pair(proxy, versus, target))

    def _pair(self, proxy: str, versus: str, target: str) -> BenchPair:
        first, second, truth = self.merits[proxy], self.merits[versus], self.sample.truths[target]
        try:
            difference = paired_quality(first, second, truth, unscored=self.rules.unscored, seed=self.rules.seed)
        except DegenerateError as error:
            return BenchPair(proxy, versus, target, None, str(error))
        return BenchPair(proxy, versus, target, difference)

    def ranking(self, rows: Sequence[BenchRow]) -> list[Place]:
        """The proxies of one target by their Spearman, those without one last."""
        first, *others = sorted(rows, key=_spearman, reverse=True)
        return [
            Place(1, first, None),
            *(Place(place, row, self._behind(row, first)) for place, row in enumerate(others, 2)),
        ]

    def _behind(self, row: BenchRow, first: BenchRow) -> BenchPair | None:
        return None if row.quality.spearman is None else self.pair(row.proxy, first.proxy, row.target)


def _spearman(row: BenchRow) -> float:
    return -2.0 if row.quality.spearman is None else row.quality.spearman
