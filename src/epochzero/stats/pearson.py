r"""Pearson's correlation with a bootstrap interval over networks and repeats, for papers that report it.

    r = sum (x - mean x) (y - mean y) / sqrt( sum (x - mean x)^2  sum (y - mean y)^2 )

Unlike rank correlations it depends on the scale of a score: with heavy tails, a few networks dominate.

The interval is computed on Fisher's scale, on which the resamples are nearly normal, with Student's quantile for small
n:

    tanh( artanh r  ±  t(n - 2) * standard deviation of artanh r* )

On bivariate normal data (correlation 0 to 0.95, 600 or more simulations each, 400 resamples) it covered 94 to 96 %
at n = 20, where percentiles covered 89 to 95 % and BCa intervals 90 to 94 %, and 93 to 95 % at n = 100. Heavy tails:
on log-normal data it covered 93 to 94 % at n = 20 and 90 % at n = 100, BCa 84 to 92 %. Trust ranks there. Below 8
networks it covers 99 to 100 % and is at least as wide as Fisher's own: see `few.py`.

Fisher. On the "probable error" of a coefficient of correlation deduced from a small sample. Metron 1921.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DegenerateError
from epochzero.stats.bootstrap import Estimate, Floats, Resampling, Statistic, estimate
from epochzero.stats.few import pearson_interval
from epochzero.stats.sample import Scores, Truth, rankable


def pearson(scores: Scores, truth: Truth, **resampling: Unpack[Resampling]) -> Estimate:
    """Returns Pearson's r. Raises `DegenerateError` with fewer than 3 points, a constant side or infinite values."""
    x, y = rankable(scores, truth)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DegenerateError("an infinite value has a rank, but no Pearson correlation")
    b = y / np.abs(y).max()
    statistics = [pearson_statistic(row / np.abs(row).max(), b) for row in x]
    return estimate(statistics, len(y), **resampling, interval=pearson_interval(fisher_interval, len(y)))


def fisher_interval(value: float, resampled: Floats, n: int, confidence: float) -> tuple[float, float]:
    """Returns an interval of a correlation that is symmetric on the scale of artanh."""
    from scipy.special import stdtrit

    most = 1 - np.finfo(np.float64).eps
    centre = math.atanh(min(max(value, -most), most))
    width = stdtrit(n - 2, (1 + confidence) / 2) * np.std(np.arctanh(np.clip(resampled, -most, most)))
    return math.tanh(centre - width), math.tanh(centre + width)


def pearson_statistic(x: Floats, y: Floats) -> Statistic:
    """Pearson's r of resamples of (x, y) given as counts."""

    def statistic(counts: Floats) -> Floats:
        size = counts.sum(axis=0)  # [R]
        a, b = (values[:, None] - values @ counts / size for values in (x, y))  # [n, R]
        scale = np.sqrt((counts * a * a).sum(axis=0) * (counts * b * b).sum(axis=0))
        exists = _varies(x, counts) & _varies(y, counts) & (scale > 0)
        r = (counts * a * b).sum(axis=0) / np.where(exists, scale, 1.0)
        return np.where(exists, np.clip(r, -1.0, 1.0), np.nan)

    return statistic


def _varies(values: Floats, counts: Floats) -> NDArray[np.bool_]:
    """Returns True for each resample with two different values, exactly, unlike a rounded variance."""
    least = np.where(counts > 0, values[:, None], np.inf).min(axis=0)
    most = np.where(counts > 0, values[:, None], -np.inf).max(axis=0)
    return np.asarray(least < most)  # [R]
