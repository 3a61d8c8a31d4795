from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import Correlation, kendall, paired_difference, paired_quality, proxy_quality, spearman
from epochzero.stats.correlation import (
    Floats,
    Statistic,
    bootstrap_counts,
    kendall_statistic,
    spearman_statistic,
)
from epochzero.types import Score

Measure = Callable[..., Correlation]
BOTH = pytest.mark.parametrize("measure", [spearman, kendall])

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
    ],
)
def test_values_worked_out_by_hand(measure: Measure, data: tuple[list[float], list[float]], expected: float) -> None:
    result = measure(*data)
    assert result.value == pytest.approx(expected, abs=1e-12)
    assert result.n == len(data[0])


def correlated(rng: np.random.Generator, rho: float, n: int) -> tuple[Floats, Floats]:
    x, noise = rng.normal(size=(2, n))
    return x, rho * x + math.sqrt(1 - rho**2) * noise


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=30), st.integers(0, 99))
def test_each_resample_agrees_with_scipy_ties_included(points: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(points, np.float64).T
    (counts,) = bootstrap_counts(len(x), 5, seed)
    assert (counts.sum(axis=0) == len(x)).all()
    pairs: list[tuple[Statistic, Any]] = [
        (spearman_statistic(x, y), scipy.stats.spearmanr),
        (kendall_statistic(x, y), scipy.stats.kendalltau),
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


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_the_interval_covers_as_often_as_it_says(rho: float) -> None:
    """Population values of a bivariate normal: rho_s = 6/pi asin(rho/2), tau = 2/pi asin(rho)."""
    rng = np.random.default_rng(2024)
    truths: list[tuple[Measure, float]] = [
        (spearman, 6 / math.pi * math.asin(rho / 2)),
        (kendall, 2 / math.pi * math.asin(rho)),
    ]
    covered = {measure: 0 for measure, _ in truths}
    simulations = 300
    for seed in range(simulations):
        x, y = correlated(rng, rho, n=100)
        for measure, truth in truths:
            result = measure(x, y, resamples=200, seed=seed)
            covered[measure] += result.low <= truth <= result.high
    for measure, times in covered.items():
        assert 0.91 <= times / simulations <= 0.985, measure


@BOTH
def test_more_networks_and_less_confidence_narrow_the_interval(measure: Measure) -> None:
    rng = np.random.default_rng(0)
    x, y = correlated(rng, 0.5, n=2000)
    few, many, loose = measure(x[:50], y[:50]), measure(x, y), measure(x, y, confidence=0.5)
    assert few.high - few.low > 3 * (many.high - many.low) > 3 * (loose.high - loose.low) > 0
    assert many.low < many.value < many.high


@BOTH
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


@BOTH
def test_resamples_without_a_correlation_are_left_out(measure: Measure) -> None:
    result = measure([0, 0, 0, 0, 1], [1, 2, 3, 4, 5])
    assert -1 <= result.low <= result.value <= result.high <= 1


@BOTH
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


@BOTH
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


@BOTH
def test_a_thousand_resamples_of_a_thousand_networks_are_quick(measure: Measure) -> None:
    x, y = correlated(np.random.default_rng(0), 0.8, n=1000)
    start = time.process_time()
    measure(x, y, resamples=1000)
    assert time.process_time() - start < 2  # about 0.1 s


def scores(*values: float | None) -> list[Score]:
    return [Score.degenerate("det K = 0") if value is None else Score(value) for value in values]


def test_quality_is_signed_by_what_the_proxy_declares() -> None:
    falling = scores(4, 3, 2, 1)
    as_higher = proxy_quality(falling, [1, 2, 3, 4], higher_is_better=True)
    as_lower = proxy_quality(falling, [1, 2, 3, 4], higher_is_better=False)
    assert [as_higher.spearman, as_higher.kendall] == pytest.approx([-1, -1])
    assert [as_lower.spearman, as_lower.kendall] == pytest.approx([1, 1])
    assert as_lower.why == ""


def test_quality_agrees_with_the_correlations_it_reports() -> None:
    x, y = correlated(np.random.default_rng(5), 0.7, n=80)
    quality = proxy_quality(scores(*x), y, True, resamples=200, seed=9)
    rho, tau = spearman(x, y, resamples=200, seed=9), kendall(x, y, resamples=200, seed=9)
    assert (quality.n, quality.unscored, quality.unscored_why) == (80, 0, {})
    assert (quality.spearman, quality.spearman_ci) == (rho.value, (rho.low, rho.high))
    assert (quality.kendall, quality.kendall_ci) == (tau.value, (tau.low, tau.high))


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_networks_without_a_score_are_dropped_or_ranked_worst(higher_is_better: bool) -> None:
    sign = 1 if higher_is_better else -1
    given = scores(None, sign * 1.0, sign * 2.0, sign * 3.0, None)
    truth = [50.0, 20.0, 30.0, 40.0, 10.0]
    dropped = proxy_quality(given, truth, higher_is_better)
    worst = proxy_quality(given, truth, higher_is_better, unscored="worst")
    assert (dropped.n, dropped.unscored, dropped.unscored_why) == (3, 2, {"det K = 0": 2})
    assert (worst.n, worst.unscored, worst.unscored_why) == (3, 2, {"det K = 0": 2})
    assert dropped.spearman == pytest.approx(1)
    # C - D: the scored three +3; the first unscored with them -3, the last +3; one pair tied among ten.
    assert worst.kendall == pytest.approx(3 / math.sqrt(9 * 10))


def test_ranked_worst_lies_below_a_score_of_minus_infinity() -> None:
    quality = proxy_quality(scores(None, -math.inf, 0), [1, 2, 3], True, unscored="worst")
    assert quality.kendall == pytest.approx(1)


def test_reasons_are_tallied_most_frequent_first() -> None:
    given = [
        Score.failed("out of memory"),
        Score.degenerate("no path"),
        Score.degenerate("no path"),
        Score.failed(""),
        Score(math.nan),
        *scores(1, 2, 3),
    ]
    quality = proxy_quality(given, list(range(8)), True)
    assert (quality.n, quality.unscored) == (3, 5)
    assert quality.unscored_why == {"no path": 2, "out of memory": 1, "failed": 1, "the score is nan": 1}
    assert next(iter(quality.unscored_why)) == "no path"


@pytest.mark.parametrize("unscored", ["drop", "worst"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([None, None, None], "none of the 3 networks has a score"),
        ([], "none of the 0 networks has a score"),
        ([2.0, 2.0, 2.0], "all 3 scores are equal"),
    ],
)
def test_quality_says_why_there_is_none(unscored: Any, given: list[float | None], why: str) -> None:
    quality = proxy_quality(scores(*given), list(range(len(given))), True, unscored=unscored)
    assert why in quality.why
    assert quality.spearman is None
    assert quality.spearman_ci is None
    assert quality.kendall is None
    assert quality.kendall_ci is None


def test_too_few_scored_networks() -> None:
    quality = proxy_quality(scores(1, 2, None), [1, 2, 3], True)
    assert (quality.n, quality.unscored) == (2, 1)
    assert "needs at least 3" in quality.why


def test_quality_refuses_misuse() -> None:
    with pytest.raises(UserError, match="'drop' or 'worst', not 'keep'"):
        proxy_quality(scores(1, 2, 3), [1, 2, 3], True, unscored="keep")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="3 scores but 2 true values"):
        proxy_quality(scores(1, 2, 3), [1, 2], True)
    with pytest.raises(UserError, match="truth hold nan"):
        proxy_quality(scores(1, 2, 3), [1, math.nan, 2], True)


def test_neither_package_loads_torch() -> None:
    code = "import sys, epochzero.stats, epochzero.benchmarks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("statistic", ["spearman", "kendall"])
def test_a_paired_difference_is_that_of_the_correlations(statistic: Any) -> None:
    rng = np.random.default_rng(3)
    first, truth = correlated(rng, 0.8, 60)
    second = rng.normal(size=60)
    measure = {"spearman": spearman, "kendall": kendall}[statistic]
    found = paired_difference(first, second, truth, statistic=statistic, resamples=400, seed=5)
    assert found.value == pytest.approx(measure(first, truth).value - measure(second, truth).value, abs=1e-12)
    slow: Any = {"spearman": scipy.stats.spearmanr, "kendall": scipy.stats.kendalltau}[statistic]
    differences = [
        slow(first[drawn], truth[drawn]).statistic - slow(second[drawn], truth[drawn]).statistic
        for counts in bootstrap_counts(60, 400, 5)
        for drawn in (np.repeat(np.arange(60), column.astype(int)) for column in counts.T)
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])), abs=1e-9)
    assert found.low > 0, "a strong proxy against noise is told apart by 60 networks"
    turned = paired_difference(second, first, truth, statistic=statistic, resamples=400, seed=5)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=1e-12)


def test_what_two_proxies_share_cancels() -> None:
    """Two near copies differ by far less than the interval of either says."""
    first, truth = correlated(np.random.default_rng(0), 0.5, 80)
    nearly = first + 1e-3 * np.random.default_rng(1).normal(size=80)
    alone, pair = spearman(first, truth), paired_difference(first, nearly, truth)
    assert pair.high - pair.low < (alone.high - alone.low) / 10
    same = paired_difference(first, first, truth)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_pairs_are_taken_over_the_networks_that_both_score() -> None:
    first, second = scores(1, 2, None, 4, 5), scores(None, 1, 2, 3, 0)
    assert paired_quality(first, second, [1, 2, 3, 4, 5], resamples=50).n == 3
    with pytest.raises(DegenerateError, match="at least 3"):
        paired_quality(first, scores(None, None, 2, 3, 4), [1, 2, 3, 4, 5])
    with pytest.raises(UserError, match="statistic=spearman or kendall, not 'pearson'"):
        paired_difference([1, 2, 3], [1, 2, 3], [1, 2, 3], statistic="pearson")  # type: ignore[arg-type]
