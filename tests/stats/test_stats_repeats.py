"""Scores that were drawn again: what one run is worth, and how far runs differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import (
    Estimate,
    kendall,
    kendall_within,
    partial_spearman,
    pearson,
    precision_at,
    regret_at,
    spearman,
)
from epochzero.stats.bootstrap import Floats, bootstrap_counts, repeat_shares
from epochzero.stats.correlation import spearman_statistic
from tests.stats.stats_samples import spearman_of

SIZE = np.random.default_rng(99).normal(size=50)
MEASURES: list[Callable[..., Estimate]] = [
    spearman,
    kendall,
    pearson,
    lambda x, y, **how: regret_at(x, y, 3, **how),
    lambda x, y, **how: precision_at(x, y, 3, **how),
    lambda x, y, **how: partial_spearman(x, y, {"size": SIZE}, **how),
    lambda x, y, **how: kendall_within(x, y, SIZE, bins=2, **how),
]


@pytest.mark.parametrize("measure", MEASURES)
def test_the_figure_is_the_mean_over_repeats(measure: Callable[..., Estimate]) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=50)
    rows = truth + rng.normal(size=(4, 50)) * np.array([[0.1], [0.5], [1], [2]])
    found = measure(rows, truth, resamples=50)
    each = [measure(row, truth, resamples=1).value for row in rows]
    assert found.by_repeat == pytest.approx(each, abs=1e-12)
    assert found.value == pytest.approx(np.mean(each), abs=1e-12)
    assert found.spread == pytest.approx(np.std(each, ddof=1), abs=1e-12)
    assert found.low <= found.high
    assert found.n == 50


def test_one_row_is_no_repeat() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 30))
    assert spearman([x], y) == spearman(x, y)
    assert spearman(x, y).by_repeat == ()
    assert spearman(x, y).spread is None


def test_equal_repeats_add_nothing() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 30))
    once, thrice = spearman(x, y), spearman([x, x, x], y)
    assert (thrice.low, thrice.high, thrice.spread) == pytest.approx((once.low, once.high, 0), abs=1e-12)


def test_a_resample_draws_networks_and_one_repeat_less_than_there_are() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=20)
    rows = truth + rng.normal(size=(3, 20))
    shares = repeat_shares(3, 200, seed=5)
    assert set(np.unique(shares)) == {0, 0.5, 1}
    assert shares.sum(axis=0) == pytest.approx(1)
    assert shares.mean(axis=1) == pytest.approx(1 / 3, abs=0.1)
    counts = np.concatenate(list(bootstrap_counts(20, 200, 5)), axis=1)
    each = np.stack([spearman_statistic(row, truth)(counts) for row in rows])
    found = spearman(rows, truth, resamples=200, seed=5)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile((each * shares).sum(axis=0), [0.025, 0.975])))


@pytest.mark.parametrize("repeats", [2, 3, 10])
def test_the_variance_over_repeats_is_that_of_a_mean(repeats: int) -> None:
    values = np.random.default_rng(repeats).normal(size=repeats)
    means = values @ repeat_shares(repeats, 20_000, seed=0)
    assert means.var() == pytest.approx(values.var(ddof=1) / repeats, rel=0.05)


def seeds_that_matter(rng: np.random.Generator, repeats: int, n: int) -> tuple[Floats, Floats]:
    """Scores of Spearman 0.78 where the seed mixes in nothing; each mixes in a nuisance with a weight of its own."""
    truth, own, nuisance = rng.normal(size=(3, n))
    merit = 0.8 * truth + 0.6 * own
    return merit + 0.5 * rng.normal(size=(repeats, 1)) * nuisance + 0.5 * rng.normal(size=(repeats, n)), truth


def test_intervals_over_seeds_cover_where_those_over_networks_do_not() -> None:
    weight, mass = np.polynomial.hermite_e.hermegauss(40)
    by_seed = np.array([spearman_of(0.8 / math.sqrt(1 + (0.5 * w) ** 2 + 0.25)) for w in weight])
    truth_over_seeds = float(by_seed @ mass / mass.sum())
    rng = np.random.default_rng(3)
    both = networks = 0
    simulations = 120
    for seed in range(simulations):
        rows, truth = seeds_that_matter(rng, 5, 100)
        found = spearman(rows, truth, resamples=128, seed=seed)
        both += found.low <= truth_over_seeds <= found.high
        (counts,) = bootstrap_counts(100, 64, seed)
        low, high = np.quantile(
            np.mean([spearman_statistic(row, truth)(counts) for row in rows], axis=0), [0.025, 0.975]
        )
        networks += low <= truth_over_seeds <= high
    assert 0.9 <= both / simulations <= 0.995
    assert networks / simulations < 0.92


def test_repeats_are_refused_where_they_do_not_fit() -> None:
    with pytest.raises(UserError, match=r"scores have shape \(2, 3\), the truth \(4,\)"):
        spearman([[1, 2, 3], [1, 2, 3]], [1, 2, 3, 4])
    with pytest.raises(UserError, match=r"scores have shape \(0, 3\)"):
        spearman(np.empty((0, 3)), [1, 2, 3])
    with pytest.raises(UserError, match=r"scores hold nan \(first at position 2"):
        spearman([[1.0, 2.0, 3.0], [1.0, 2.0, math.nan]], [1, 2, 3])
    with pytest.raises(DegenerateError, match="all 3 scores are equal in repeat 2"):
        spearman([[1, 2, 3], [5, 5, 5]], [1, 2, 3])
