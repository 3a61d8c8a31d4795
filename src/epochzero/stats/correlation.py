r"""Rank correlation of a proxy with the truth, with a bootstrap interval over networks and repeats.

Spearman's rho is Pearson's correlation of the midranks. Kendall's tau-b counts pairs: with C concordant and
D discordant pairs among all T, of which T_x are tied in x and T_y in y,

    tau_b = (C - D) / sqrt((T - T_x) (T - T_y))

Ties: rho gives tied networks their mean rank, tau-b takes tied pairs out of the scale of the side they are tied on.

Why plain percentiles: on bivariate normal data (correlation 0 to 0.95, 600 simulations each, 400 resamples)
the 95 % interval covered 93 to 96 % at n = 100, BCa intervals 93 to 97 %. At n = 20 percentiles cover
94 to 98 %, a little wide for strong correlations; there BCa was nearer for Spearman, but not for Kendall. Below 8
networks, and where all resamples agree, percentiles are too narrow and are widened: see `few.py`.

Why not scipy: its `spearmanr` and `kendalltau` take one sample at a time. Here a resample is counts, and all of a
block are ranked at once from one sort of the data; scipy is the oracle of the tests.

Kendall. A new measure of rank correlation. Biometrika 1938; tau-b: The treatment of ties, Biometrika 1945.
"""

from __future__ import annotations

import numpy as np

from epochzero.stats.bootstrap import Estimate, Floats, Statistic, estimate
from epochzero.stats.few import kendall_interval, spearman_interval
from epochzero.stats.ranks import Ties, pair_counts, ratio
from epochzero.stats.sample import Scores, Truth, rankable

Correlation = Estimate


def spearman(
    scores: Scores, truth: Truth, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Spearman's rho. Raises `DegenerateError` where none exists: under 3 points, or one side constant."""
    x, y = rankable(scores, truth)
    n, statistics = len(y), [spearman_statistic(row, y) for row in x]
    interval = spearman_interval(n)
    return estimate(statistics, n, resamples=resamples, confidence=confidence, seed=seed, interval=interval)


def kendall(
    scores: Scores, truth: Truth, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Kendall's tau-b. Raises `DegenerateError` where none exists: under 3 points, or one side constant."""
    x, y = rankable(scores, truth)
    n, statistics = len(y), [kendall_statistic(row, y) for row in x]
    interval = kendall_interval(n)
    return estimate(statistics, n, resamples=resamples, confidence=confidence, seed=seed, interval=interval)


def spearman_statistic(x: Floats, y: Floats) -> Statistic:
    """Spearman's rho of resamples of (x, y) given as counts."""
    x_ties, y_ties = Ties(x), Ties(y)

    def statistic(counts: Floats) -> Floats:
        x_ranks, x_variance = x_ties.centred_midranks(counts)
        y_ranks, y_variance = y_ties.centred_midranks(counts)
        covariance = np.einsum("nr,nr,nr->r", counts, x_ranks, y_ranks)
        return ratio(covariance, x_variance * y_variance)

    return statistic


def kendall_statistic(x: Floats, y: Floats) -> Statistic:
    """Kendall's tau-b of resamples of (x, y) given as counts."""
    count = pair_counts(x, y)

    def statistic(counts: Floats) -> Floats:
        pairs = count(counts)
        return ratio(pairs.surplus, pairs.x_untied * pairs.y_untied)

    return statistic
