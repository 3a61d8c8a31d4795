r"""nDCG: are good networks near the top of the order by score? The upper places count most.

The gain g_i of a network is the share of the other networks that are truly worse, with half of those that tie with it.
With network i(p) at place p by score, and j(p) at place p by truth, among n networks,

    DCG  = sum_{p <= k} g_{i(p)} / log2(p + 1)        best = sum_{p <= k} g_{j(p)} / log2(p + 1)
    nDCG = DCG / best,        k = n / 10, rounded up

1 is the true order of the first tenth; a random order has about 0.5, since gains are ranks: accuracies themselves are
so alike that any order would have nearly 1. Ties of scores share the mean of their gains.

Järvelin, Kekäläinen. Cumulated gain-based evaluation of IR techniques. ACM TOIS 2002.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from epochzero.stats.bootstrap import Estimate, Floats, Resampling, Statistic, estimate
from epochzero.stats.ranks import Ties
from epochzero.stats.sample import Scores, Truth, rankable

SHARE = 10
"""one of this many networks belongs to the top"""


def ndcg(scores: Scores, truth: Truth, **resampling: Unpack[Resampling]) -> Estimate:
    """Returns nDCG of the first tenth. Raises `DegenerateError` with fewer than 3 points or a constant side."""
    x, y = rankable(scores, truth)
    return estimate([ndcg_statistic(row, y) for row in x], len(y), **resampling)


def ndcg_statistic(x: Floats, y: Floats) -> Statistic:
    """The nDCG of resamples of (x, y) given as counts."""
    by_score, by_truth, worst_first, n = Ties(-x), Ties(-y), Ties(y), len(y)
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n + 2)))])  # [n + 1], up to each place
    total = discounts[np.minimum(np.arange(n + 1), -(-n // SHARE))]

    def statistic(counts: Floats) -> Floats:
        gains = 0.5 + worst_first.centred_midranks(counts)[0] / (n - 1)  # [n, R]
        return _gained(by_score, gains, counts, total) / _gained(by_truth, gains, counts, total)

    return statistic


def _gained(order: Ties, gains: Floats, counts: Floats, total: Floats) -> Floats:
    """Returns the discounted gains [R] in an order of groups: each group has its mean gain at all of its places."""
    sizes = order.sizes(counts)  # [groups, R]
    through = np.cumsum(sizes, axis=0).astype(np.int64)
    places = total[through] - total[through - sizes.astype(np.int64)]
    means = order.sizes(gains * counts) / np.maximum(sizes, 1)
    gained: Floats = np.einsum("gr,gr->r", means, places)
    return gained
