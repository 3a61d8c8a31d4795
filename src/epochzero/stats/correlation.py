r"""Rank correlation of a proxy with the truth, with a bootstrap interval over architectures.

Spearman's rho is Pearson's correlation of the midranks. Kendall's tau-b counts pairs: with C concordant and
D discordant pairs among all T, of which T_x are tied in x and T_y in y,

    tau_b = (C - D) / sqrt((T - T_x) (T - T_y))

The interval resamples architectures, the pair of score and truth together, and takes percentiles. A resample
is kept as counts: how often it holds each architecture. The order of the data and its ties then need to be
found once, not once a resample; C takes log2 n cumulative sums over the counts.

Why plain percentiles: on bivariate normal data (correlation 0 to 0.95, 600 simulations each, 400 resamples)
the 95 % interval covered 93 to 96 % at n = 100, BCa intervals 93 to 97 %. At n = 20 percentiles cover
94 to 98 %, a little wide for strong correlations; there BCa was nearer for Spearman, but not for Kendall.

Kendall. A new measure of rank correlation. Biometrika 1938; tau-b: The treatment of ties, Biometrika 1945.
Efron, Tibshirani. An introduction to the bootstrap. 1993, chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr

from epochzero.errors import DegenerateError, UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[[Floats], Floats]
"""Counts [n, R] of R resamples of n points to R values; nan where a resample is constant on one side."""

BLOCK = 64
"""resamples handled together, so that memory does not grow with their number"""


@dataclass(frozen=True)
class Correlation:
    """A rank correlation of `n` points and its bootstrap interval."""

    value: float
    low: float
    high: float
    n: int


def spearman(
    scores: Sequence[float] | Floats,
    truth: Sequence[float] | Floats,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Correlation:
    """Spearman's rho. Raises `DegenerateError` where none exists: under 3 points, or one side constant."""
    x, y = checked_pair(scores, truth)
    low, high = percentile_interval(spearman_statistic(x, y), len(x), resamples, confidence, seed)
    return Correlation(float(spearmanr(x, y).statistic), low, high, len(x))


def kendall(
    scores: Sequence[float] | Floats,
    truth: Sequence[float] | Floats,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Correlation:
    """Kendall's tau-b. Raises `DegenerateError` where none exists: under 3 points, or one side constant."""
    x, y = checked_pair(scores, truth)
    low, high = percentile_interval(kendall_statistic(x, y), len(x), resamples, confidence, seed)
    return Correlation(float(kendalltau(x, y).statistic), low, high, len(x))


def checked_pair(scores: Sequence[float] | Floats, truth: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    x, y = np.asarray(scores, np.float64), np.asarray(truth, np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise UserError(
            f"A correlation needs two lists of equal length; the scores have shape {x.shape}, the truth {y.shape}."
        )
    for name, values in (("scores", x), ("truth", y)):
        if np.isnan(values).any():
            first = int(np.flatnonzero(np.isnan(values))[0])
            raise UserError(f"The {name} hold nan (first at position {first}); leave such networks out.")
    if len(x) < 3:
        raise DegenerateError(f"a rank correlation needs at least 3 networks; there are {len(x)}")
    for name, values in (("scores", x), ("true values", y)):
        if (values == values[0]).all():
            raise DegenerateError(f"all {len(x)} {name} are equal, so nothing can be ranked")
    return x, y


def percentile_interval(
    statistic: Statistic, n: int, resamples: int, confidence: float, seed: int
) -> tuple[float, float]:
    """Percentile interval. Resamples that are constant on one side have no correlation and are left out."""
    if resamples < 1 or not 0 < confidence < 1:
        raise UserError(
            f"An interval needs at least 1 resample and a confidence between 0 and 1; "
            f"got resamples={resamples}, confidence={confidence}."
        )
    values = np.concatenate([statistic(counts) for counts in bootstrap_counts(n, resamples, seed)])
    values = values[~np.isnan(values)]
    if not len(values):
        raise DegenerateError(f"all {resamples} resamples of the {n} networks are constant")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap_counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each of n points is drawn, n draws with replacement a resample: blocks [n, R], R <= BLOCK."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, BLOCK):
        width = min(BLOCK, resamples - start)
        drawn = rng.integers(n, size=(n, width)) * width + np.arange(width)  # cell of [n, R], flattened
        yield np.bincount(drawn.ravel(), minlength=n * width).reshape(n, width).astype(np.float64)


def spearman_statistic(x: Floats, y: Floats) -> Statistic:
    """Spearman's rho of resamples of (x, y) given as counts."""
    x_ties, y_ties = _Ties(x), _Ties(y)

    def statistic(counts: Floats) -> Floats:
        x_ranks, x_variance = x_ties.centred_midranks(counts)
        y_ranks, y_variance = y_ties.centred_midranks(counts)
        covariance = np.einsum("nr,nr,nr->r", counts, x_ranks, y_ranks)
        return _ratio(covariance, x_variance * y_variance)

    return statistic


def kendall_statistic(x: Floats, y: Floats) -> Statistic:
    """Kendall's tau-b of resamples of (x, y) given as counts."""
    x_ties, y_ties = _Ties(x), _Ties(y)
    both_ties = _Ties(x_ties.group * len(y) + y_ties.group)
    concordant = _concordant_pairs(x_ties.group, y_ties.group)

    def statistic(counts: Floats) -> Floats:
        size = counts.sum(axis=0)
        pairs = size * (size - 1) / 2
        x_tied, y_tied, both_tied = (ties.tied_pairs(counts) for ties in (x_ties, y_ties, both_ties))
        untied = pairs - x_tied - y_tied + both_tied  # C + D
        return _ratio(2 * concordant(counts) - untied, (pairs - x_tied) * (pairs - y_tied))

    return statistic


def _ratio(numerator: Floats, squared_scale: Floats) -> Floats:
    exists = squared_scale > 0
    value = numerator / np.sqrt(np.where(exists, squared_scale, 1.0))
    return np.where(exists, np.clip(value, -1.0, 1.0), np.nan)


class _Ties:
    """The groups of equal values, in ascending order, and what counts make of them."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        distinct, group = np.unique(values, return_inverse=True)
        self.group: Ints = group.astype(np.int64)
        self._order = np.argsort(group, kind="stable")
        self._starts = np.searchsorted(group[self._order], np.arange(len(distinct)))

    def sizes(self, counts: Floats) -> Floats:
        sizes: Floats = np.add.reduceat(counts[self._order], self._starts, axis=0)  # [groups, R]
        return sizes

    def tied_pairs(self, counts: Floats) -> Floats:
        sizes = self.sizes(counts)
        pairs: Floats = (sizes * (sizes - 1)).sum(axis=0) / 2  # [R]
        return pairs

    def centred_midranks(self, counts: Floats) -> tuple[Floats, Floats]:
        """Rank of each point less the mean rank [n, R], and the sum of its squares over each resample [R]."""
        sizes = self.sizes(counts)
        ranks = np.cumsum(sizes, axis=0) - (sizes + counts.sum(axis=0)) / 2  # [groups, R]
        return ranks[self.group], np.einsum("gr,gr,gr->r", sizes, ranks, ranks)


def _concordant_pairs(x: Ints, y: Ints) -> Statistic:
    """Pairs that rise in both x and y, both given as ranks 0, 1, ...

    In the order of x (equal x: y descending) a concordant pair is an earlier point with a smaller y. Its two
    y first differ, read from the highest bit, at one bit: there they share all higher bits, the earlier
    point has a 0 and the later a 1. So each bit counts, among points that share the higher bits, the earlier
    zeros of each one.
    """
    order = np.lexsort((-y, x))
    levels = []
    for bit in range(int(y.max()).bit_length()):
        rows = order[np.argsort(y[order] >> (bit + 1), kind="stable")]
        shared = y[rows] >> (bit + 1)
        one = (y[rows] >> bit) & 1 == 1
        zeros, ones = rows[~one], rows[one]
        before = np.cumsum(~one)[one]  # zeros up to each one, over all blocks
        first = np.searchsorted(shared[~one], shared[one])  # zeros in the blocks before its own
        levels.append((zeros, ones, before, first))

    def statistic(counts: Floats) -> Floats:
        total = np.zeros(counts.shape[1])
        for zeros, ones, before, first in levels:
            running = np.zeros((len(zeros) + 1, counts.shape[1]))
            np.cumsum(counts[zeros], axis=0, out=running[1:])
            total += np.einsum("nr,nr->r", counts[ones], running[before] - running[first])
        return total

    return statistic
