"""Is a proxy more than size? Partial correlations, and tau among networks of like size."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import Estimate, kendall, kendall_within, partial_spearman, spearman
from epochzero.stats.bootstrap import Floats, bootstrap_counts
from epochzero.stats.partial import partial_statistic
from epochzero.stats.within import equal_bins, within_statistic
from tests.stats.stats_samples import correlated

Quantities = dict[str, list[float]]


@pytest.mark.parametrize(
    ("y", "size", "expected"),
    [
        # Spearman of score and truth .8, of score and size .9, of truth and size .6
        ([2.0, 1.0, 4.0, 3.0, 5.0], [1.0, 2.0, 3.0, 5.0, 4.0], (0.8 - 0.9 * 0.6) / math.sqrt(0.19 * 0.64)),
        # within the small and within the large networks the truth runs against the score: .6, 4 / sqrt(20) twice
        ([2.0, 1.0, 4.0, 3.0], [7.0, 7.0, 9.0, 9.0], -1),
    ],
)
def test_partial_correlations_worked_out_by_hand(y: list[float], size: list[float], expected: float) -> None:
    found = partial_spearman(range(1, len(y) + 1), y, {"size": size}, resamples=50)
    assert found.value == pytest.approx(expected, abs=1e-12)


def residual(ranks: Floats, given: Floats) -> Floats:
    design = np.column_stack([np.ones(len(ranks)), given])
    left: Floats = ranks - design @ np.linalg.lstsq(design, ranks, rcond=1e-9)[0]
    return left


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 4), min_size=4, max_size=25), st.integers(1, 2), st.integers(0, 99))
def test_each_resample_agrees_with_a_regression_of_ranks(points: list[tuple[int, ...]], held: int, seed: int) -> None:
    x, y, *sizes = np.array(points, np.float64).T[: 2 + held]
    (counts,) = bootstrap_counts(len(x), 4, seed)
    for value, count in zip(partial_statistic(x, y, *sizes)(counts), counts.T, strict=True):
        rows = np.repeat(np.arange(len(x)), count.astype(int))
        ranks = [scipy.stats.rankdata(column[rows]) for column in (x, y, *sizes)]
        a, b = (residual(one, np.column_stack(ranks[2:])) for one in ranks[:2])
        if min(a @ a, b @ b) < 1e-9 * len(rows) ** 3:
            assert math.isnan(value)
        else:
            assert value == pytest.approx(a @ b / math.sqrt((a @ a) * (b @ b)), abs=1e-7)


def test_given_nothing_it_is_spearman() -> None:
    x, y = correlated(np.random.default_rng(0), 0.5, 50)
    assert partial_spearman(x, y, {}, resamples=50).value == pytest.approx(spearman(x, y, resamples=50).value)


def test_a_second_size_of_the_same_order_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y, params = rng.normal(size=(3, 50)) + rng.normal(size=50)
    once = partial_spearman(x, y, {"params": params})
    twice = partial_spearman(x, y, {"params": params, "flops": np.exp(params)})
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))


def test_a_proxy_that_is_size_has_nothing_left() -> None:
    y, params, flops = np.random.default_rng(0).normal(size=(3, 30))
    for size in (params, np.exp(params)):
        with pytest.raises(DegenerateError, match="given params nothing is left of the order of the scores"):
            partial_spearman(size, y, {"params": params})
        with pytest.raises(DegenerateError, match="given flops and params nothing is left of the order of the true"):
            partial_spearman(y, size, {"flops": flops, "params": params})


def test_what_size_explains_is_told_from_what_it_does_not() -> None:
    rng = np.random.default_rng(0)
    size, luck, skill, noise = rng.normal(size=(4, 1000))
    truth = size + 0.5 * skill + 0.1 * noise
    only_size, more = size + 0.5 * luck, size + 0.5 * skill + 0.3 * luck
    assert spearman(only_size, truth).low > 0.7
    # Ranks are not normal: adjusting by a line in ranks leaves a little, far below what skill adds.
    assert abs(partial_spearman(only_size, truth, {"size": size}).value) < 0.1
    assert partial_spearman(more, truth, {"size": size}).low > 0.7
    assert abs(kendall_within(only_size, truth, size, bins=50, resamples=1).value) < 0.1
    assert kendall_within(more, truth, size, bins=50).low > 0.4


HALVES = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], (1 - 3) / 6),  # small networks: two pairs rise, one falls; large ones: all three fall
        ([1, 1, 3, 4, 5, 6], (2 - 3) / math.sqrt(5 * 6)),  # the falling pair of the small ones is tied instead
        ([1, 1, 1, 4, 5, 6], -3 / math.sqrt(3 * 6)),  # a bin that the score does not tell apart
    ],
)
def test_tau_within_bins_worked_out_by_hand(x: list[float], expected: float) -> None:
    found = kendall_within(x, [2, 1, 3, 6, 5, 4], HALVES, bins=2)
    assert found.value == pytest.approx(expected)
    assert (found.n, found.low <= found.high) == (6, True)


def test_bins_hold_equally_many_and_equal_sizes_stay_together() -> None:
    rng = np.random.default_rng(0)
    assert np.bincount(equal_bins(rng.normal(size=1000), 10)).tolist() == [100] * 10
    assert np.bincount(equal_bins(rng.normal(size=10), 3)).tolist() == [3, 4, 3]
    assert equal_bins(np.array([5.0, 5, 5, 5, 9, 9]), 3).tolist() == [1, 1, 1, 1, 2, 2]
    sizes = rng.integers(5, size=200).astype(np.float64)
    bins = equal_bins(sizes, 7)
    assert all(len(set(bins[sizes == size])) == 1 for size in range(5))
    assert (np.diff(bins[np.argsort(sizes)]) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), min_size=3, max_size=20),
    st.integers(0, 99),
)
def test_each_resample_agrees_with_a_count_of_pairs(points: list[tuple[int, int, int]], seed: int) -> None:
    x, y, bins = np.array(points).T
    assume(len(set(bins)) > 1)
    (counts,) = bootstrap_counts(len(x), 3, seed)
    for value, count in zip(within_statistic(x * 1.0, y * 1.0, bins)(counts), counts.T, strict=True):
        rows = np.repeat(np.arange(len(x)), count.astype(int))
        i, j = np.triu_indices(len(rows), 1)
        same = bins[rows[i]] == bins[rows[j]]
        rise_x, rise_y = (np.sign(side[rows[i]] - side[rows[j]])[same] for side in (x, y))
        scale = math.sqrt(np.abs(rise_x).sum() * np.abs(rise_y).sum())
        assert math.isnan(value) if scale == 0 else value == pytest.approx((rise_x * rise_y).sum() / scale)


@pytest.mark.parametrize(("size", "bins"), [(range(40), 1), ([3.0] * 40, 10)])
def test_in_one_bin_it_is_kendall(size: list[float], bins: int) -> None:
    x, y = correlated(np.random.default_rng(0), 0.5, 40)
    assert kendall_within(x, y, list(size), bins=bins, resamples=100) == kendall(x, y, resamples=100)


def test_few_networks_have_few_bins_and_the_pairs_are_told() -> None:
    sizes = np.arange(12.0)
    found = kendall_within(sizes, sizes, sizes)
    assert found == kendall_within(sizes, sizes, sizes, bins=2)
    assert (found.value, found.high, found.pairs) == (1.0, 1.0, 2 * 15)  # two bins of six
    assert found.low < 0.9
    split = kendall_within(sizes, sizes, sizes, bins=10)
    assert (split.low, split.high, split.pairs) == (-1.0, 1.0, 2)
    assert kendall_within(np.arange(100.0), np.arange(100.0), np.arange(100.0)).pairs == 10 * 45


def test_no_two_networks_share_a_bin() -> None:
    with pytest.raises(DegenerateError, match="within 4 bins of size no two networks differ"):
        kendall_within([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], bins=4)
    with pytest.raises(UserError, match="at least 1 bin, not 0"):
        kendall_within([1, 2, 3], [1, 2, 3], [1, 2, 3], bins=0)
    with pytest.raises(UserError, match=r"size has shape \(2,\)"):
        kendall_within([1, 2, 3], [1, 2, 3], [1, 2])
    with pytest.raises(UserError, match=r"flops hold nan \(first at position 0"):
        partial_spearman([1, 2, 3], [1, 3, 2], {"flops": [math.nan, 1, 2]})


@pytest.mark.parametrize(
    "measure",
    [
        lambda x, y, size: partial_spearman(x, y, {"size": size, "noise": size + y}),
        kendall_within,
    ],
)
def test_a_thousand_resamples_of_a_thousand_networks_are_quick(measure: Callable[..., Estimate]) -> None:
    x, y = correlated(np.random.default_rng(0), 0.8, n=1000)
    size = np.random.default_rng(1).normal(size=1000)
    start = time.process_time()
    measure(x, y, size)
    assert time.process_time() - start < 2  # about 0.15 s
