"""Means and standard deviations of a few repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import chdtri, stdtrit

from epochzero.stats import Estimate

DEVIATION = "deviation"
TAIL = 0.025
"""probability on either side of an interval"""


def estimate(values: Sequence[float], statistic: str = "mean") -> Estimate:
    """Returns the mean or the standard deviation of a few values, with the 95 % interval of normal values.

    Student's t for the mean, chi-square for the deviation: a bootstrap of three to ten values is far too narrow. One
    value alone has no interval: both of its ends are the value.
    """
    n, mean = len(values), float(np.mean(values))
    if n == 1:
        return Estimate(mean, mean, mean, 1)
    deviation = float(np.std(values, ddof=1))
    if statistic == DEVIATION:
        low, high = (deviation * math.sqrt((n - 1) / chdtri(n - 1, tail)) for tail in (TAIL, 1 - TAIL))
        return Estimate(deviation, low, high, n)
    half = float(stdtrit(n - 1, 1 - TAIL)) * deviation / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)
