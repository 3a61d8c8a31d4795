"""A 95 % interval holds the population's value in 95 % of samples, within what the number of samples allows.

Where the population's value has no formula it is the mean of many samples. Regret, whose interval covers less, is held
to what its docstring says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from epochzero.stats import (
    Estimate,
    kendall,
    kendall_within,
    paired_difference,
    partial_spearman,
    pearson,
    precision_at,
    regret_at,
    spearman,
)
from epochzero.stats.bootstrap import Floats
from tests.stats.stats_samples import correlated, kendall_of, spearman_of

SIMULATIONS = 250
ERROR = 3 * math.sqrt(0.95 * 0.05 / SIMULATIONS)
"""three standard errors of a share of 95 %: 4.1 points"""


def coverage(draw: Callable[[], tuple[Floats, ...]], measure: Callable[..., Estimate], truth: float) -> float:
    found = [measure(*draw(), resamples=128, seed=seed) for seed in range(SIMULATIONS)]
    return float(np.mean([one.low <= truth <= one.high for one in found]))


@pytest.mark.parametrize("rho", [0.2, 0.8])
@pytest.mark.parametrize(
    ("measure", "population"), [(spearman, spearman_of), (kendall, kendall_of), (pearson, lambda rho: rho)]
)
def test_correlations(measure: Callable[..., Estimate], population: Callable[[float], float], rho: float) -> None:
    rng = np.random.default_rng(2024)
    assert coverage(lambda: correlated(rng, rho, 80), measure, population(rho)) == pytest.approx(0.95, abs=ERROR)


def test_pearson_of_few_networks() -> None:
    """Where percentiles cover 89 %."""
    rng = np.random.default_rng(7)
    assert coverage(lambda: correlated(rng, 0.0, 20), pearson, 0.0) == pytest.approx(0.95, abs=ERROR)


@pytest.mark.parametrize("n", [5, 8, 20])
@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.parametrize(
    ("measure", "population"), [(spearman, spearman_of), (kendall, kendall_of), (pearson, lambda rho: rho)]
)
def test_few_networks(
    measure: Callable[..., Estimate], population: Callable[[float], float], rho: float, n: int
) -> None:
    """At least what it says: of few networks an interval is wide. Percentiles alone cover 72 % at n = 5 and .9."""
    rng = np.random.default_rng([n, 31])
    assert coverage(lambda: correlated(rng, rho, n), measure, population(rho)) >= 0.95 - ERROR


def test_a_difference_of_few_networks() -> None:
    rng = np.random.default_rng(37)

    def draw() -> tuple[Floats, Floats, Floats]:
        truth, *own = rng.normal(size=(3, 5))
        return 0.95 * truth + 0.3 * own[0], 0.6 * truth + 0.8 * own[1], truth

    difference = spearman_of(0.95 / math.hypot(0.95, 0.3)) - spearman_of(0.6)
    assert coverage(draw, paired_difference, difference) >= 0.95 - ERROR


def test_partial_correlation() -> None:
    """Score and truth hold size with .7 each, and what is left of them is correlated by .6."""
    rng = np.random.default_rng(11)
    of_size, of_both = spearman_of(0.7), spearman_of(0.49 + 0.51 * 0.6)
    truth = (of_both - of_size**2) / (1 - of_size**2)

    def draw() -> tuple[Floats, Floats, Floats]:
        size = rng.normal(size=80)
        own = correlated(rng, 0.6, 80)
        x, y = (0.7 * size + math.sqrt(0.51) * one for one in own)
        return x, y, size

    def measure(x: Floats, y: Floats, size: Floats, *, resamples: int, seed: int) -> Estimate:
        return partial_spearman(x, y, {"size": size}, resamples=resamples, seed=seed)

    assert coverage(draw, measure, truth) == pytest.approx(0.95, abs=ERROR)


def test_paired_difference() -> None:
    rng = np.random.default_rng(13)

    def draw() -> tuple[Floats, Floats, Floats]:
        truth = rng.normal(size=80)
        own = correlated(rng, 0.5, 80)
        return 0.8 * truth + 0.6 * own[0], 0.6 * truth + 0.8 * own[1], truth

    difference = spearman_of(0.8) - spearman_of(0.6)
    assert coverage(draw, paired_difference, difference) == pytest.approx(0.95, abs=ERROR)


def test_tau_within_bins() -> None:
    """Which is a little wide, as `stats/within.py` says. The truth is the mean of many samples."""
    rng = np.random.default_rng(17)

    def draw(n: int = 80) -> tuple[Floats, Floats, Floats]:
        size, own = rng.normal(size=n), correlated(rng, 0.6, n)
        return 0.7 * size + own[0], 0.7 * size + own[1], size

    def measure(x: Floats, y: Floats, size: Floats, *, resamples: int, seed: int) -> Estimate:
        return kendall_within(x, y, size, bins=4, resamples=resamples, seed=seed)

    truth = np.mean([measure(*draw(), resamples=1, seed=0).value for _ in range(400)])
    assert coverage(draw, measure, float(truth)) >= 0.95


@pytest.mark.parametrize(("k", "least"), [(1, 0.86), (10, 0.88)])
def test_regret_covers_less_and_says_so(k: int, least: float) -> None:
    """`stats/top.py` gives 86 to 94 % at k = 1, and 88 to 91 % at k = 10 where many samples have a regret."""
    rng = np.random.default_rng(19)

    def draw() -> tuple[Floats, Floats]:
        return correlated(rng, 0.5, 100)

    def measure(x: Floats, y: Floats, *, resamples: int, seed: int) -> Estimate:
        return regret_at(x, y, k, resamples=resamples, seed=seed)

    truth = np.mean([y.max() - y[np.argsort(-x)[:k]].max() for x, y in (draw() for _ in range(10_000))])
    assert least - ERROR <= coverage(draw, measure, float(truth)) <= 0.94 + ERROR


@pytest.mark.parametrize("k", [1, 10])
def test_precision_covers_at_least_what_it_says(k: int) -> None:
    rng = np.random.default_rng(23)

    def draw() -> tuple[Floats, Floats]:
        return correlated(rng, 0.7, 200)

    def measure(x: Floats, y: Floats, *, resamples: int, seed: int) -> Estimate:
        return precision_at(x, y, k, resamples=resamples, seed=seed)

    def hits(x: Floats, y: Floats) -> float:
        return len(set(np.argsort(-x)[:k]) & set(np.argsort(-y)[:k])) / k

    truth = np.mean([hits(*draw()) for _ in range(5_000)])
    assert coverage(draw, measure, float(truth)) >= 0.95 - ERROR / 3
