"""Ranks, ties and pairs of resamples given as counts: the parts of the rank statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.stats.bootstrap import Floats, Statistic

Ints = NDArray[np.int64]


class Ties:
    """The groups of equal values, in ascending order, and their statistics in resamples given as counts."""

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
        """Rank of each point minus the mean rank [n, R], and the sum of its squares over each resample [R]."""
        sizes = self.sizes(counts)
        ranks = np.cumsum(sizes, axis=0) - (sizes + counts.sum(axis=0)) / 2  # [groups, R]
        return ranks[self.group], np.einsum("gr,gr,gr->r", sizes, ranks, ranks)


class Pairs(NamedTuple):
    """Counts of pairs of points in each resample [R]."""

    surplus: Floats
    """concordant minus discordant pairs"""
    x_untied: Floats
    y_untied: Floats


def pair_counts(x: Floats, y: Floats) -> Callable[[Floats], Pairs]:
    """Returns a function from counts to the pairs of resamples of (x, y)."""
    x_ties, y_ties = Ties(x), Ties(y)
    both_ties = Ties(x_ties.group * len(y) + y_ties.group)
    concordant = _concordant_pairs(x_ties.group, y_ties.group)

    def count(counts: Floats) -> Pairs:
        size = counts.sum(axis=0)
        pairs = size * (size - 1) / 2
        x_tied, y_tied, both_tied = (ties.tied_pairs(counts) for ties in (x_ties, y_ties, both_ties))
        untied = pairs - x_tied - y_tied + both_tied  # C + D
        return Pairs(2 * concordant(counts) - untied, pairs - x_tied, pairs - y_tied)

    return count


def ratio(numerator: Floats, squared_scale: Floats) -> Floats:
    """Returns a correlation from its covariance and the product of the variances; nan if one of them is 0."""
    exists = squared_scale > 0
    value = numerator / np.sqrt(np.where(exists, squared_scale, 1.0))
    return np.where(exists, np.clip(value, -1.0, 1.0), np.nan)


def _concordant_pairs(x: Ints, y: Ints) -> Statistic:
    """Counts the pairs that rise in both x and y, both given as ranks 0, 1, ...

    In the order of x (equal x: y descending) a concordant pair is an earlier point with a smaller y. Its two
    y first differ, read from the highest bit, at one bit: there they share all higher bits, the earlier
    point has a 0 and the later a 1. So each bit counts, among points that share the higher bits, the earlier
    zeros of each one: log2 n cumulative sums over the counts.
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
