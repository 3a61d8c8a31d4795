"""Agreement of scores between two ways of running: relative errors and rank correlation, network by network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epochzero.stats.correlation import rho_of
from epochzero.types import Score

Pair = tuple[Score, Score]
"""of one network, by the two ways that are compared"""


@dataclass(frozen=True)
class Agreement:
    """Agreement of one proxy's scores of the same networks, in populations and one by one."""

    proxy: str
    population: int
    networks: int
    """networks with both scores"""
    one_alone: int
    """networks with a score one way and none the other"""
    neither: int
    """networks with a score neither way"""
    median_relative_error: float | None
    worst_relative_error: float | None
    spearman: float | None


def agreement(proxy: str, population: int, pairs: Sequence[Pair]) -> Agreement:
    """Relative errors |a - b| / max(|a|, |b|) of the pairs, and the rank correlation."""
    both = np.array([(one.value, other.value) for one, other in pairs if one.ok and other.ok]).reshape(-1, 2)
    differ = sum(one.ok != other.ok for one, other in pairs)
    scale = np.abs(both).max(1, initial=0)
    gaps = np.abs(both[:, 0] - both[:, 1]) / np.where(scale > 0, scale, 1)
    median, worst = (float(np.median(gaps)), float(gaps.max())) if len(gaps) else (None, None)
    neither = len(pairs) - len(both) - differ
    return Agreement(proxy, population, len(both), differ, neither, median, worst, rho_of(*both.T))
