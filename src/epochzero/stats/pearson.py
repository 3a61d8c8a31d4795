r"""Pearson's correlation with a bootstrap interval over networks, for papers that report it.

    r = sum (x - mean x) (y - mean y) / sqrt( sum (x - mean x)^2  sum (y - mean y)^2 )

Unlike rank correlations it depends on the scale of a score: with heavy tails, a few networks decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr

from epochzero.stats.correlation import Correlation, Floats, Statistic, checked_pair, percentile_interval


def pearson(x: Sequence[float], y: Sequence[float], *, resamples: int = 1000, seed: int = 0) -> Correlation:
    """Raises `DegenerateError` where none exists: under 3 points, or one side constant."""
    a, b = (values / np.abs(values).max() for values in checked_pair(x, y))
    low, high = percentile_interval(pearson_statistic(a, b), len(a), resamples, 0.95, seed)
    return Correlation(float(pearsonr(a, b).statistic), low, high, len(a))


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
    """Whether a resample holds two different values; their variance, being rounded, does not tell."""
    least = np.where(counts > 0, values[:, None], np.inf).min(axis=0)
    most = np.where(counts > 0, values[:, None], -np.inf).max(axis=0)
    return np.asarray(least < most)  # [R]
