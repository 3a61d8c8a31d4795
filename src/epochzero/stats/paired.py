r"""The difference of the correlations of two proxies with the truth, on the same networks.

    difference = rho(first, truth) - rho(second, truth)

Both use the same resamples of the networks, so that an easy or hard sample affects both alike and cancels. Repeats are
paired too: row s of both has the same seed and batch. A deterministic proxy has one row, for any number of rows of the
other. If the interval contains 0, the difference is not significant.

The interval takes percentiles: on normal data (four pairs of proxies, 600 simulations each, 400 resamples) the 95 %
interval covered 94 to 98 % (Spearman) and 95 to 99 % (Kendall) at n = 30, and 95 to 96 % (both) at n = 100. With
few networks it is wider: see `few.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Unpack

import numpy as np

from epochzero.errors import UserError
from epochzero.stats.bootstrap import Estimate, Floats, Interval, Resampling, Statistic, estimate, percentile_interval
from epochzero.stats.correlation import kendall, kendall_statistic, spearman, spearman_statistic
from epochzero.stats.few import FEW, difference_interval
from epochzero.stats.sample import Scores, Truth, rankable

Ranking = Literal["spearman", "kendall"]
STATISTICS: dict[str, Callable[[Floats, Floats], Statistic]] = {
    "spearman": spearman_statistic,
    "kendall": kendall_statistic,
}
MEASURES = {"spearman": spearman, "kendall": kendall}


def paired_difference(
    first: Scores,
    second: Scores,
    truth: Truth,
    *,
    statistic: Ranking = "spearman",
    **resampling: Unpack[Resampling],
) -> Estimate:
    """Returns the correlation of the first with the truth minus that of the second; higher is better in all three."""
    if statistic not in STATISTICS:
        raise UserError(f"A paired difference takes statistic={' or '.join(STATISTICS)}, not {statistic!r}.")
    (a, y), (b, _) = rankable(first, truth), rankable(second, truth)
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise UserError(
            f"The first proxy has {len(a)} repeats, the second {len(b)}; give the same seeds of both, or one row."
        )
    repeats = max(len(a), len(b))
    rows = zip(np.broadcast_to(a, (repeats, len(y))), np.broadcast_to(b, (repeats, len(y))), strict=True)
    of = STATISTICS[statistic]
    differences = [_difference(of(one, y), of(other, y)) for one, other in rows]

    def estimated(interval: Interval) -> Estimate:
        return estimate(differences, len(y), **resampling, interval=interval)

    difference = estimated(percentile_interval)
    same = difference.low == difference.high and difference.value != 0  # equal orders differ by 0 in any resample
    if len(y) < FEW or same:
        each = (MEASURES[statistic](x, y, **resampling) for x in (a, b))
        difference = estimated(difference_interval(*each))
    return difference


def _difference(first: Statistic, second: Statistic) -> Statistic:
    return lambda counts: first(counts) - second(counts)
