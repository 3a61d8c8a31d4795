"""Correlations and their intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import Estimate, kendall, pearson, spearman
from epochzero.stats.bootstrap import Statistic, bootstrap_counts
from epochzero.stats.correlation import kendall_statistic, spearman_statistic
from epochzero.stats.few import known_interval
from epochzero.stats.pearson import pearson_statistic
from tests.stats.stats_samples import correlated, resamples

Measure = Callable[..., Estimate]
BOTH = pytest.mark.parametrize("measure", [spearman, kendall])
ALL = pytest.mark.parametrize("measure", [spearman, kendall, pearson])

# By hand: ranks (1, 2, 3, 4) and (1, 3, 2, 4). Sum of squared rank differences 2: rho = 1 - 6*2/(4*15) = 0.8.
# One of six pairs is discordant: tau = (5 - 1) / 6.
SWAPPED = ([10.0, 20.0, 30.0, 40.0], [1.0, 3.0, 2.0, 4.0])
# x tied once, y untied: ranks (1.5, 1.5, 3) and (1, 2, 3): rho = 1.5 / sqrt(1.5 * 2).
# Two pairs rise together, one is tied in x: tau_b = 2 / sqrt(2 * 3).
TIED = ([5.0, 5.0, 9.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("measure", "data", "expected"),
    [
        (spearman, SWAPPED, 0.8),
        (kendall, SWAPPED, 4 / 6),
        (spearman, TIED, 1.5 / math.sqrt(3)),
        (kendall, TIED, 2 / math.sqrt(6)),
        (pearson, TIED, 4 / math.sqrt(32 / 3 * 2)),  # deviations (-4/3, -4/3, 8/3) and (-1, 0, 1)
    ],
)
def test_values_worked_out_by_hand(measure: Measure, data: tuple[list[float], list[float]], expected: float) -> None:
    result = measure(*data)
    assert result.value == pytest.approx(expected, abs=1e-12)
    assert result.n == len(data[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=30), st.integers(0, 99))
def test_each_resample_agrees_with_scipy_ties_included(points: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(points, np.float64).T
    (counts,) = bootstrap_counts(len(x), 5, seed)
    assert (counts.sum(axis=0) == len(x)).all()
    pairs: list[tuple[Statistic, Any]] = [
        (spearman_statistic(x, y), scipy.stats.spearmanr),
        (kendall_statistic(x, y), scipy.stats.kendalltau),
        (pearson_statistic(x, y), scipy.stats.pearsonr),
    ]
    for statistic, oracle in pairs:
        for value, count in zip(statistic(counts), counts.T, strict=True):
            rows = np.repeat(np.arange(len(x)), count.astype(int))
            if np.ptp(x[rows]) == 0 or np.ptp(y[rows]) == 0:
                assert math.isnan(value)
            else:
                assert value == pytest.approx(oracle(x[rows], y[rows]).statistic, abs=1e-12)


def test_resamples_are_drawn_with_replacement_and_not_alike() -> None:
    counts = np.concatenate(list(bootstrap_counts(50, 200, seed=0)), axis=1)
    assert counts.shape == (50, 200)
    assert len(np.unique(counts, axis=1).T) == 200
    assert (counts == 0).mean() == pytest.approx((1 - 1 / 50) ** 50, abs=0.02)


@ALL
def test_more_networks_and_less_confidence_narrow_the_interval(measure: Measure) -> None:
    rng = np.random.default_rng(0)
    x, y = correlated(rng, 0.5, n=2000)
    few, many, loose = measure(x[:50], y[:50]), measure(x, y), measure(x, y, confidence=0.5)
    assert few.high - few.low > 3 * (many.high - many.low) > 3 * (loose.high - loose.low) > 0
    assert many.low < many.value < many.high


@ALL
def test_the_seed_decides(measure: Measure) -> None:
    x, y = correlated(np.random.default_rng(0), 0.5, n=60)
    assert measure(x, y, seed=3) == measure(list(x), list(y), seed=3)
    assert measure(x, y, seed=3).low != measure(x, y, seed=4).low


@BOTH
def test_only_the_order_matters(measure: Measure) -> None:
    x, y = correlated(np.random.default_rng(1), 0.5, n=60)
    base = measure(x, y)
    assert measure(np.exp(x), y) == base
    flipped = measure(-x, y)
    assert flipped.value == pytest.approx(-base.value)
    assert (flipped.low, flipped.high) == pytest.approx((-base.high, -base.low))


@BOTH
def test_infinite_scores_are_ranked(measure: Measure) -> None:
    assert measure([-math.inf, 0, 1, math.inf], [1, 2, 3, 4]).value == pytest.approx(1)


def test_infinite_scores_have_no_pearson_correlation() -> None:
    with pytest.raises(DegenerateError, match="an infinite value has a rank, but no Pearson correlation"):
        pearson([-math.inf, 0, 1], [1, 2, 3])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_straight_line_has_an_interval_without_width(sign: int) -> None:
    found = pearson([1, 2, 3, 4], [sign * 2, sign * 4, sign * 6, sign * 8], resamples=50)
    assert (found.low, found.value, found.high) == pytest.approx((sign, sign, sign), abs=1e-6)


def test_the_interval_of_pearson_is_symmetric_on_fishers_scale() -> None:
    x, y = correlated(np.random.default_rng(0), 0.9, n=30)
    found = pearson(x, y)
    low, middle, high = (math.atanh(value) for value in (found.low, found.value, found.high))
    assert high - middle == pytest.approx(middle - low)
    drawn = [math.atanh(scipy.stats.pearsonr(x[rows], y[rows]).statistic) for rows in resamples(30, 1000, 0)]
    assert high - middle == pytest.approx(2.0484 * np.std(drawn), rel=1e-4)  # Student's quantile of 28 degrees


@ALL
def test_resamples_without_a_correlation_are_left_out(measure: Measure) -> None:
    result = measure([0, 0, 0, 0, 1], [1, 2, 3, 4, 5])
    assert -1 <= result.low <= result.value <= result.high <= 1


@ALL
@pytest.mark.parametrize(
    ("scores", "truth", "reason"),
    [
        ([], [], "at least 3 networks; there are 0"),
        ([1, 2], [1, 2], "at least 3 networks; there are 2"),
        ([7, 7, 7], [1, 2, 3], "all 3 scores are equal"),
        ([1, 2, 3], [7, 7, 7], "all 3 true values are equal"),
    ],
)
def test_no_correlation_exists(measure: Measure, scores: list[float], truth: list[float], reason: str) -> None:
    with pytest.raises(DegenerateError, match=reason):
        measure(scores, truth)


@ALL
def test_misuse_is_refused(measure: Measure) -> None:
    with pytest.raises(UserError, match=r"scores hold nan \(first at position 1"):
        measure([1, math.nan, 3], [1, 2, 3])
    with pytest.raises(UserError, match="truth hold nan"):
        measure([1, 2, 3], [1, 2, math.nan])
    with pytest.raises(UserError, match=r"shape \(3,\), the truth \(2,\)"):
        measure([1, 2, 3], [1, 2])
    with pytest.raises(UserError, match="resamples=0"):
        measure([1, 2, 3], [1, 2, 3], resamples=0)
    with pytest.raises(UserError, match=r"confidence=95"):
        measure([1, 2, 3], [1, 2, 3], confidence=95)


@ALL
def test_a_thousand_resamples_of_a_thousand_networks_are_quick(measure: Measure) -> None:
    x, y = correlated(np.random.default_rng(0), 0.8, n=1000)
    start = time.process_time()
    measure(x, y, resamples=1000)
    assert time.process_time() - start < 2  # about 0.1 s


@ALL
def test_three_networks_leave_everything_open(measure: Measure) -> None:
    found = measure([1.0, 2.0, 4.0], [1.0, 2.0, 4.0])
    assert (found.value, found.low, found.high) == (1.0, -1.0, 1.0)


@BOTH
def test_a_perfect_order_has_an_interval_with_a_width_however_many_networks(measure: Measure) -> None:
    widths = []
    for n in (5, 12, 100):
        found = measure(np.arange(n), np.arange(n))
        assert (found.value, found.high) == (1.0, 1.0)
        widths.append(found.high - found.low)
    assert 1 > widths[0] > widths[1] > widths[2] > 0


def test_from_eight_networks_on_resamples_alone_decide() -> None:
    x, y = correlated(np.random.default_rng(3), 0.5, 8)
    drawn = [scipy.stats.spearmanr(x[rows], y[rows]).statistic for rows in resamples(8, 200, seed=5)]
    found = spearman(x, y, resamples=200, seed=5)
    assert (found.low, found.high) == pytest.approx(tuple(np.nanquantile(drawn, [0.025, 0.975])))


def test_fishers_interval_is_scipys() -> None:
    x, y = correlated(np.random.default_rng(4), 0.5, 6)
    oracle = scipy.stats.pearsonr(x, y)
    found = known_interval(oracle.statistic, lambda r: 1 / 3, 0.0, 0.9)
    assert found == pytest.approx(tuple(oracle.confidence_interval(0.9)))
