r"""Which of two proxies orders the same networks better: the difference of their rank correlations.

    difference = rho(first, truth) - rho(second, truth)

Both are taken over the same resamples of the networks, so what they share, an easy or a hard sample, cancels. An
interval that holds 0 says that the sample does not tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from epochzero.errors import UserError
from epochzero.stats.correlation import (
    Correlation,
    Floats,
    checked_pair,
    kendall_statistic,
    percentile_interval,
    spearman_statistic,
)

STATISTICS = {"spearman": spearman_statistic, "kendall": kendall_statistic}


def paired_difference(
    first: Sequence[float] | Floats,
    second: Sequence[float] | Floats,
    truth: Sequence[float] | Floats,
    *,
    statistic: Literal["spearman", "kendall"] = "spearman",
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Correlation:
    """By how much the first correlates better with the truth than the second, more being better in all three."""
    if statistic not in STATISTICS:
        raise UserError(f"A paired difference takes statistic={' or '.join(STATISTICS)}, not {statistic!r}.")
    of_first, of_second = (STATISTICS[statistic](*checked_pair(scores, truth)) for scores in (first, second))

    def difference(counts: Floats) -> Floats:
        return of_first(counts) - of_second(counts)

    n = len(first)
    low, high = percentile_interval(difference, n, resamples, confidence, seed)
    return Correlation(float(difference(np.ones((n, 1)))[0]), low, high, n)
