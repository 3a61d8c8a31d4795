r"""Bootstrap intervals over networks, and over repeats of their scores.

A resample draws n of the n networks with replacement, score and truth together. It is kept as counts: how often it
holds each network. The order of the data and its ties then need to be found once, not once a resample.

Repeats. Row s of scores [S, n] is a fresh draw of all that is random about a score: initial weights, batch of data.
The figure is the mean over repeats of each repeat's own statistic, so it says what one run of the proxy is worth,
not what the average of S runs is worth. A resample then draws networks and, apart from them, S - 1 of the S repeats
with replacement. With S draws the variance of the mean over repeats would come out (S - 1) / S of what it is, with
S - 1 draws it is right. Two ways of drawing together err on the wide side where networks and repeats interact.

Measured on normal data with Spearman about 0.7, 200 networks, 400 simulations each: with repeats that differ by chance
alone the 95 % interval covered 97 to 98 % (2 to 10 repeats); with true differences between repeats, of a standard
deviation of 0.06, it covered 94 to 97 %, where an interval over networks alone covered 84 to 92 %. Few repeats cannot
tell a large spread: at 0.12 it covered 84 % with 2 repeats, 89 % with 3, 91 % with 5 and 96 % with 10.

Efron, Tibshirani. An introduction to the bootstrap. 1993, chapter 13.
Rao, Wu. Resampling inference with complex survey data. JASA 1988: one draw less than there are units.
Owen. The pigeonhole bootstrap. Annals of Applied Statistics 2007: two ways together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DegenerateError, UserError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Counts [n, R] of R resamples of n points to R values; nan where a resample has none, being constant on one side."""

Interval = Callable[[float, Floats, int, float], tuple[float, float]]
"""Value, values of the resamples, number of points and confidence to low and high."""

BLOCK = 64
"""resamples handled together, so that memory does not grow with their number"""


@dataclass(frozen=True)
class Estimate:
    """A statistic of `n` networks and its bootstrap interval."""

    value: float
    low: float
    high: float
    n: int
    by_repeat: tuple[float, ...] = ()
    """the statistic of each repeat alone, where there is more than one; `value` is their mean"""
    pairs: int | None = None
    """how many pairs of networks were compared, where not all of them were"""

    @property
    def spread(self) -> float | None:
        """Standard deviation over repeats: how far one run of the proxy is from another."""
        return float(np.std(self.by_repeat, ddof=1)) if self.by_repeat else None


def percentile_interval(value: float, resampled: Floats, n: int, confidence: float) -> tuple[float, float]:
    """What lies between the tails of the resamples' values."""
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
    """The mean of one statistic for each repeat, over n networks. Resamples without a value are left out."""
    if resamples < 1 or not 0 < confidence < 1:
        raise UserError(
            f"An interval needs at least 1 resample and a confidence between 0 and 1; "
            f"got resamples={resamples}, confidence={confidence}."
        )
    by_repeat = [float(statistic(np.ones((n, 1)))[0]) for statistic in statistics]
    value = float(np.mean(by_repeat))
    if np.isnan(value):
        raise DegenerateError(f"the {n} networks differ too little for this statistic")
    blocks = [np.stack([one(counts) for one in statistics]) for counts in bootstrap_counts(n, resamples, seed)]
    drawn = np.concatenate(blocks, axis=1)  # [S, R]
    shares = repeat_shares(len(statistics), resamples, seed)  # [S, R]
    values = (np.where(shares > 0, drawn, 0.0) * shares).sum(axis=0)
    values = values[~np.isnan(values)]
    if not len(values):
        raise DegenerateError(f"all {resamples} resamples of the {n} networks are constant")
    low, high = interval(value, values, n, confidence)
    return Estimate(value, low, high, n, tuple(by_repeat) if len(by_repeat) > 1 else ())


def bootstrap_counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each of n points is drawn, n draws with replacement a resample: blocks [n, R], R <= BLOCK."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, BLOCK):
        width = min(BLOCK, resamples - start)
        drawn = rng.integers(n, size=(n, width)) * width + np.arange(width)  # cell of [n, R], flattened
        yield np.bincount(drawn.ravel(), minlength=n * width).reshape(n, width).astype(np.float64)


def repeat_shares(repeats: int, resamples: int, seed: int) -> Floats:
    """The weight of each repeat in each resample [S, R]: the share of S - 1 draws that fell on it."""
    draws = max(repeats - 1, 1)
    drawn = np.random.default_rng([seed, repeats]).integers(repeats, size=(draws, resamples))
    hit: Floats = (drawn == np.arange(repeats)[:, None, None]).mean(axis=1)
    return hit
