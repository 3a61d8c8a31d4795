"""Regret and precision of the first k networks."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import Estimate, precision_at, regret_at
from epochzero.stats.bootstrap import Floats, bootstrap_counts
from epochzero.stats.top import precision_statistic, regret_statistic
from tests.stats.stats_samples import correlated

BOTH = pytest.mark.parametrize("measure", [regret_at, precision_at])

# By score: 90, 93, 91, 92, 94 (the best last).
SCORES, TRUTH = [5.0, 4.0, 3.0, 2.0, 1.0], [90.0, 93.0, 91.0, 92.0, 94.0]
# The second and third tie in score: the first two are {90, 93} or {90, 91}.
TIED = [5.0, 4.0, 4.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("given", "k", "regret", "precision"),
    [
        (SCORES, 1, 4, 0),
        (SCORES, 2, 1, 1 / 2),  # {90, 93} against {93, 94}
        (SCORES, 3, 1, 1 / 3),  # {90, 91, 93} against {92, 93, 94}
        (SCORES, 4, 1, 3 / 4),
        (SCORES, 5, 0, 1),
        (TIED, 2, (1 + 3) / 2, (1 / 2 + 0) / 2),
        (TIED, 3, 1, 1 / 3),
        ([7.0] * 5, 1, (0 + 1 + 2 + 3 + 4) / 5, 1 / 5),
        ([7.0] * 5, 2, (4 * 0 + 3 * 1 + 2 * 2 + 1 * 3) / 10, 2 / 5),  # of ten pairs four hold 94, three more 93, ...
    ],
)
def test_values_worked_out_by_hand(given: list[float], k: int, regret: float, precision: float) -> None:
    assert regret_at(given, TRUTH, k).value == pytest.approx(regret)
    assert precision_at(given, TRUTH, k).value == pytest.approx(precision)


def test_networks_that_tie_with_the_kth_are_among_the_best() -> None:
    assert precision_at([4, 3, 2, 1], [9, 8, 8, 8], 2).value == 1
    assert precision_at([1, 2, 3, 4], [9, 8, 8, 8], 2).value == 1
    assert precision_at([1, 2, 3, 4], [9, 9, 8, 8], 2).value == 0


def by_enumeration(x: Floats, y: Floats, k: int) -> tuple[float, float]:
    """Regret and precision, averaged over every way to break the ties of scores."""
    by_score = np.sort(x)[::-1]
    sure, tied = np.flatnonzero(x > by_score[k - 1]), np.flatnonzero(x == by_score[k - 1])
    bar = np.sort(y)[::-1][k - 1]
    ways = [[*sure, *some] for some in itertools.combinations(tied, k - len(sure))]
    regret = np.mean([y.max() - y[way].max() for way in ways])
    return float(regret), float(np.mean([(y[way] >= bar).mean() for way in ways]))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_each_resample_agrees_with_all_ways_to_break_its_ties(points: list[tuple[int, int]], k: int, seed: int) -> None:
    x, y = np.array(points, np.float64).T
    k = min(k, len(x))
    (counts,) = bootstrap_counts(len(x), 4, seed)
    found = zip(regret_statistic(x, y, k)(counts), precision_statistic(x, y, k)(counts), counts.T, strict=True)
    for regret, precision, count in found:
        rows = np.repeat(np.arange(len(x)), count.astype(int))
        assert (regret, precision) == pytest.approx(by_enumeration(x[rows], y[rows], k), abs=1e-9)


def test_many_ties_are_exact() -> None:
    """All alike: the best of k random ones out of n is the j-th with probability C(n - j, k - 1) / C(n, k)."""
    n, k = 2000, 10
    truth = np.arange(n, 0, -1.0)
    expected = sum((j - 1) * math.comb(n - j, k - 1) / math.comb(n, k) for j in range(1, n + 1))
    assert regret_at(np.zeros(n), truth, k, resamples=1).value == pytest.approx(expected, rel=1e-9)
    assert precision_at(np.zeros(n), truth, k, resamples=1).value == pytest.approx(k / n)


@pytest.mark.parametrize("k", [1, 3, 30])
def test_a_perfect_proxy_has_no_regret_in_any_resample(k: int) -> None:
    truth = np.random.default_rng(0).normal(size=30)
    regret, precision = regret_at(np.exp(truth), truth, k), precision_at(np.exp(truth), truth, k)
    assert (regret.value, regret.low, regret.high) == (0, 0, 0)
    # No resample misses, so Wilson's interval of k hits in k trials holds: k / (k + 1.96^2) to 1.
    assert (precision.value, precision.low, precision.high) == pytest.approx((1, k / (k + 1.959964**2), 1))


def test_no_hit_at_all_still_has_an_interval() -> None:
    falling = precision_at(np.arange(40.0), -np.arange(40.0), 5)
    wilson = scipy.stats.binomtest(0, 5).proportion_ci(method="wilson")
    assert (falling.value, falling.low, falling.high) == pytest.approx((0, wilson.low, wilson.high))


def test_scores_may_be_infinite_and_the_order_is_all_that_counts() -> None:
    x, y = correlated(np.random.default_rng(1), 0.5, 40)
    assert regret_at(np.exp(x), y, 5) == regret_at(x, y, 5)
    assert regret_at([-math.inf, math.inf, 0], [1, 2, 3], 1).value == 1


@BOTH
def test_misuse_is_refused(measure: Callable[..., Estimate]) -> None:
    with pytest.raises(UserError, match="at least 1, not 0"):
        measure([1, 2, 3], [1, 2, 3], 0)
    with pytest.raises(UserError, match="infinite value"):
        measure([1, 2, 3], [1, 2, math.inf], 1)
    with pytest.raises(UserError, match="scores hold nan"):
        measure([1, math.nan, 3], [1, 2, 3], 1)
    with pytest.raises(DegenerateError, match="no first 4 of 3 networks"):
        measure([1, 2, 3], [1, 2, 3], 4)
    with pytest.raises(DegenerateError, match="no first 1 of 0 networks"):
        measure([], [], 1)


@BOTH
def test_a_thousand_resamples_of_a_thousand_networks_are_quick(measure: Callable[..., Estimate]) -> None:
    x, y = correlated(np.random.default_rng(0), 0.8, n=1000)
    start = time.process_time()
    measure(x, y, 10, resamples=1000)
    assert time.process_time() - start < 2  # about 0.06 s
