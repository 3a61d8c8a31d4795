r"""Bootstrap intervals over networks, and over repeats of their scores.

A resample draws n of the n networks with replacement, score and truth together. It is stored as counts of each network,
so that the data are sorted and their ties identified only once, not once per resample.

Repeats. Row s of scores [S, n] is a fresh draw of everything random in a score: initial weights, batch of data. The
result is the mean over repeats of each repeat's own statistic, so it describes one run of the proxy, not the average of
S runs. A resample draws networks and, independently, S - 1 of the S repeats with replacement. With S draws the variance
of the mean over repeats would be (S - 1) / S of the true one; with S - 1 draws it is right. Drawing both networks and
repeats makes the interval too wide if they interact.

Measured on normal data with Spearman about 0.7, 200 networks, 400 simulations each: with repeats that differ only by
chance the 95 % interval covered 97 to 98 % (2 to 10 repeats); with true differences between repeats, of a standard
deviation of 0.06, it covered 94 to 97 %, while an interval over networks only covered 84 to 92 %. Few repeats cannot
estimate a large spread: at 0.12 it covered 84 % with 2 repeats, 89 % with 3, 91 % with 5 and 96 % with 10.

Efron, Tibshirani. An introduction to the bootstrap. 1993, chapter 13.
Rao, Wu. Resampling inference with complex survey data. JASA 1988: one draw less than units.
Owen. The pigeonhole bootstrap. Annals of Applied Statistics 2007: two factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DegenerateError, UserError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Maps counts [n, R] of R resamples of n points to R values; nan for a resample that is constant on one side."""

Interval = Callable[[float, Floats, int, float], tuple[float, float]]
"""Value, values of the resamples, number of points and confidence to low and high."""


class Resampling(TypedDict, total=False):
    """Keywords of every statistic, with the defaults of `estimate`."""

    resamples: int
    confidence: float
    seed: int


BLOCK = 64
"""number of resamples in memory together"""


@dataclass(frozen=True)
class Estimate:
    """A statistic of `n` networks and its bootstrap interval."""

    value: float
    low: float
    high: float
    n: int
    by_repeat: tuple[float, ...] = ()
    """the statistic of each repeat, if there are several; `value` is their mean"""
    pairs: int | None = None
    """number of pairs of networks that were compared, unless all were"""

    @property
    def spread(self) -> float | None:
        """Standard deviation over repeats."""
        return float(np.std(self.by_repeat, ddof=1)) if self.by_repeat else None


def percentile_interval(value: float, resampled: Floats, n: int, confidence: float) -> tuple[float, float]:
    """Returns the percentile interval of the resamples' values."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def estimate(
    statistics: Sequence[Statistic],
    n: int,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    interval: Interval = percentile_interval,
) -> Estimate:
    """Returns the mean over repeats of one statistic of n networks. Resamples without a value are left out."""
    if resamples < 1 or not 0 < confidence < 1:
        raise UserError(
            f"An interval needs at least 1 resample and a confidence between 0 and 1; "
            f"got resamples={resamples}, confidence={confidence}."
        )
    by_repeat = [float(statistic(np.ones((n, 1)))[0]) for statistic in statistics]
    value = float(np.mean(by_repeat))
    if np.isnan(value):
        raise DegenerateError(f"the {n} networks differ too little for this statistic")
    values = resampled(statistics, n, resamples, seed)
    values = values[~np.isnan(values)]
    if not len(values):
        raise DegenerateError(f"all {resamples} resamples of the {n} networks are constant")
    low, high = interval(value, values, n, confidence)
    return Estimate(value, low, high, n, tuple(by_repeat) if len(by_repeat) > 1 else ())


def resampled(statistics: Sequence[Statistic], n: int, resamples: int, seed: int) -> Floats:
    """Returns the mean over repeats in each resample [R]; nan where the resample has none."""
    blocks = [np.stack([one(counts) for one in statistics]) for counts in bootstrap_counts(n, resamples, seed)]
    drawn = np.concatenate(blocks, axis=1)  # [S, R]
    shares = repeat_shares(len(statistics), resamples, seed)  # [S, R]
    values: Floats = (np.where(shares > 0, drawn, 0.0) * shares).sum(axis=0)
    return values


def bootstrap_counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yields blocks [n, R], R <= BLOCK, of counts of n points in R resamples of n draws with replacement."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, BLOCK):
        width = min(BLOCK, resamples - start)
        drawn = rng.integers(n, size=(n, width)) * width + np.arange(width)  # cell of [n, R], flattened
        yield np.bincount(drawn.ravel(), minlength=n * width).reshape(n, width).astype(np.float64)


def repeat_shares(repeats: int, resamples: int, seed: int) -> Floats:
    """Returns the weight of each repeat in each resample [S, R]: its share of S - 1 draws."""
    draws = max(repeats - 1, 1)
    drawn = np.random.default_rng([seed, repeats]).integers(repeats, size=(draws, resamples))
    hit: Floats = (drawn == np.arange(repeats)[:, None, None]).mean(axis=1)
    return hit
