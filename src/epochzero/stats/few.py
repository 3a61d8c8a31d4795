r"""Intervals of correlations of few networks, for which resampling is not enough.

If 5 networks are in perfect order, so is every resample of them, and percentiles have no width. On Fisher's scale a
correlation r is nearly normal with a known variance v, and its interval is

    tanh( artanh r  ±  z sqrt(v) )        Pearson    v = 1 / (n - 3)
                                          Spearman   v = (1 + r^2 / 2) / (n - 3)
                                          Kendall    v = .437 / (n - 4)

from -1 to 1 if n - 3 or n - 4 is not positive. With m given quantities, n becomes n - m; if pairs are compared only
within b bins, n - 4 becomes n - 4 b. A perfect order has no artanh: it is moved by half a step, a step being the change
of r when two neighbours swap, and its interval ends at 1.

Below `FEW` networks, and if resamples give no width, the interval is the union of this one and that of the resamples.
On bivariate normal data (correlation 0 to .99, 500 simulations each,
128 resamples) the 95 % interval then covered 93 to 100 % at n = 4 to 8, where percentiles of rank correlations covered
27 to 98 %; at n = 10 and .99 Kendall's, percentiles still, covered 87 %. A difference of two correlations takes the
square root of the sum of both squared half widths (Zou), which is wide where the two are much alike.

Fisher. On the "probable error" of a coefficient of correlation deduced from a small sample. Metron 1921.
Bonett, Wright. Sample size requirements for estimating Pearson, Kendall and Spearman correlations. Psychometrika 2000.
Fieller, Hartley, Pearson. Tests for rank correlation coefficients. Biometrika 1957.
Zou. Toward using confidence intervals to compare correlations. Psychological Methods 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from epochzero.stats.bootstrap import Estimate, Floats, Interval, percentile_interval

FEW = 8
"""number of networks from which resamples alone give an interval with the stated coverage"""
NO_WIDTH = 1e-12
"""largest difference of two correlations that is due to rounding"""

Variance = Callable[[float], float]
"""Variance of a correlation on Fisher's scale."""


def pearson_interval(interval: Interval, n: int) -> Interval:
    """Returns the interval of Pearson's r of n networks, of no width if they are on a straight line."""
    return widened(interval, lambda r: _shared(float(1 - abs(r) > NO_WIDTH), n - 3), half_step=0.0)


def spearman_interval(n: int, given: int = 0) -> Interval:
    """Returns the interval of Spearman's rho of n networks with a number of given quantities."""
    return widened(
        percentile_interval, lambda rho: _shared(1 + rho**2 / 2, n - given - 3), half_step=6 / (n * (n**2 - 1))
    )


def kendall_interval(n: int, bins: int = 1, pairs: int | None = None) -> Interval:
    """Returns the interval of Kendall's tau of n networks: over all pairs, or over `pairs` within bins."""
    compared = pairs or n * (n - 1) / 2
    return widened(percentile_interval, lambda tau: _shared(0.437, n - 4 * bins), half_step=1 / compared)


def _shared(spread: float, left: int) -> float:
    return spread / left if left > 0 else math.inf


def widened(interval: Interval, variance: Variance, half_step: float) -> Interval:
    """Returns an interval of resamples, widened by Fisher's if there are few networks or no width."""

    def wide(value: float, resampled: Floats, n: int, confidence: float) -> tuple[float, float]:
        low, high = interval(value, resampled, n, confidence)
        if n >= FEW and high - low > NO_WIDTH:
            return low, high
        least, most = known_interval(value, variance, half_step, confidence)
        return min(low, least), max(high, most)

    return wide


def known_interval(value: float, variance: Variance, half_step: float, confidence: float) -> tuple[float, float]:
    """Returns the interval on Fisher's scale."""
    from scipy.special import ndtri

    most = 1 - max(half_step, float(np.finfo(np.float64).eps))
    inside = min(max(value, -most), most)
    width = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance(inside))
    low, high = (math.tanh(math.atanh(inside) + way) for way in (-width, width))
    return min(low, value), max(high, value)


def difference_interval(first: Estimate, second: Estimate) -> Interval:
    """Returns percentiles of the difference of two correlations of few networks, widened by both intervals."""

    def wide(value: float, resampled: Floats, n: int, confidence: float) -> tuple[float, float]:
        low, high = percentile_interval(value, resampled, n, confidence)
        down = math.hypot(first.value - first.low, second.high - second.value)
        up = math.hypot(first.high - first.value, second.value - second.low)
        return min(low, value - down), max(high, value + up)

    return wide
