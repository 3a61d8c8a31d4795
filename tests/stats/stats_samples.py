"""Samples for the tests of the statistics: normal pairs, scores, and resamples written out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from epochzero.stats.bootstrap import Floats, bootstrap_counts
from epochzero.stats.ranks import Ints
from epochzero.types import Score


def correlated(rng: np.random.Generator, rho: float, n: int) -> tuple[Floats, Floats]:
    """Bivariate normal: Spearman 6/pi asin(rho/2), Kendall 2/pi asin(rho), Pearson rho."""
    x, noise = rng.normal(size=(2, n))
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def spearman_of(rho: float) -> float:
    return 6 / math.pi * math.asin(rho / 2)


def kendall_of(rho: float) -> float:
    return 2 / math.pi * math.asin(rho)


def scores(*values: float | None) -> list[Score]:
    return [Score.degenerate("det K = 0") if value is None else Score(value) for value in values]


def resamples(n: int, times: int, seed: int) -> Iterator[Ints]:
    """The points of each resample, as often as it holds them."""
    for counts in bootstrap_counts(n, times, seed):
        yield from (np.repeat(np.arange(n), column.astype(int)) for column in counts.T)
