r"""Kendall's tau among networks of like size: pairs are compared only within a bin of FLOPs (or of any other size).

Bins hold equally many networks, in the order of size; networks of equal size share a bin. There are 10, or as many as
have 5 networks each, unless a number is given. Over all pairs within bins,

    tau_b = sum_bins (C - D) / sqrt( sum_bins (T - T_x)  sum_bins (T - T_y) )

so a bin weighs as much as it has pairs. A proxy that only measures size has nothing left but what sizes differ within
a bin. The bins are those of the sample in every resample.

The interval takes percentiles and is a little wide: on normal data (four mixtures, 600 simulations each, 400 resamples,
n = 100) the 95 % interval covered 98 % with 5 bins and 98 to 99 % with 10. That of few networks is wider: see `few.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from epochzero.errors import DegenerateError, UserError
from epochzero.stats.bootstrap import Estimate, Floats, Statistic, estimate
from epochzero.stats.few import kendall_interval
from epochzero.stats.partial import as_quantity
from epochzero.stats.ranks import Ints, Ties, pair_counts, ratio
from epochzero.stats.sample import Scores, Truth, rankable

MOST, LEAST = 10, 5
"""bins, and networks in a bin, where nothing else is asked for"""


def kendall_within(
    scores: Scores,
    truth: Truth,
    size: Truth,
    *,
    bins: int | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Kendall's tau-b over the pairs of networks within each of `bins` bins of size."""
    if bins is not None and bins < 1:
        raise UserError(f"Sizes are split into at least 1 bin, not {bins}.")
    x, y = rankable(scores, truth)
    n = len(y)
    bins = bins or max(1, min(MOST, n // LEAST))
    bin_of = equal_bins(as_quantity("size", size, n), bins)
    statistics = [within_statistic(row, y, bin_of) for row in x]
    if any(np.isnan(statistic(np.ones((n, 1)))[0]) for statistic in statistics):
        raise DegenerateError(f"within {bins} bins of size no two networks differ in both score and truth")
    held = np.unique(bin_of, return_counts=True)[1]
    pairs = int((held * (held - 1)).sum()) // 2
    interval = kendall_interval(n, len(held), pairs)
    found = estimate(statistics, n, resamples=resamples, confidence=confidence, seed=seed, interval=interval)
    return found if len(held) == 1 else replace(found, pairs=pairs)


def equal_bins(size: Floats, bins: int) -> Ints:
    """The bin 0, 1, ... of each network, from its midrank."""
    ranks, _ = Ties(size).centred_midranks(np.ones((len(size), 1)))  # [n, 1], about 0
    found: Ints = ((ranks[:, 0] + len(size) / 2) / len(size) * bins).astype(np.int64)
    return found


def within_statistic(x: Floats, y: Floats, bin_of: Ints) -> Statistic:
    """Pooled tau-b of resamples of (x, y) given as counts."""
    members = [np.flatnonzero(bin_of == one) for one in np.unique(bin_of)]
    counters = [pair_counts(x[rows], y[rows]) for rows in members]

    def statistic(counts: Floats) -> Floats:
        found = [count(counts[rows]) for rows, count in zip(members, counters, strict=True)]
        surplus, x_untied, y_untied = np.sum(found, axis=0)  # each [R], over all bins
        return ratio(surplus, x_untied * y_untied)

    return statistic
