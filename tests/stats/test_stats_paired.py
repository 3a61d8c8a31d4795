"""Two proxies on the same networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from epochzero.errors import DegenerateError, UserError
from epochzero.stats import kendall, paired_difference, paired_quality, spearman
from tests.stats.stats_samples import correlated, resamples, scores


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
        for drawn in resamples(60, 400, 5)
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])), abs=1e-9)
    assert found.low > 0, "a strong proxy differs from noise on 60 networks"
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


def test_ranked_worst_all_networks_are_compared() -> None:
    first, second, truth = scores(1, 2, 3, None), scores(None, 1, 2, 3), [1, 2, 3, 4]
    found = paired_quality(first, second, truth, unscored="worst", statistic="kendall", resamples=50)
    assert found.n == 4
    assert found.value == pytest.approx(0 - 1)  # pairs of the first: 3 rise, 3 fall; of the second: all rise
    with pytest.raises(DegenerateError, match="no network is scored by both"):
        paired_quality(scores(1, 2, None), scores(None, None, 3), [1, 2, 3])
    with pytest.raises(UserError, match="There are 3 and 2 scores but 3 true values"):
        paired_quality(scores(1, 2, 3), scores(1, 2), [1, 2, 3])


def test_repeats_of_two_proxies_are_pairs() -> None:
    """A seed that helps both alike does not blur their difference."""
    rng = np.random.default_rng(0)
    truth, noise, nuisance = rng.normal(size=(3, 200))
    luck = np.array([[0.0], [1.0], [2.0], [3.0]]) * nuisance
    first, second = truth + luck, truth + luck + 0.5 * noise
    found = paired_difference(first, second, truth, resamples=300)
    one, other = ([spearman(row, truth, resamples=1).value for row in rows] for rows in (first, second))
    each = np.subtract(one, other)
    assert found.by_repeat == pytest.approx(each)
    assert found.value == pytest.approx(np.mean(each))
    alone = spearman(first, truth, resamples=300)
    assert found.high - found.low < (alone.high - alone.low) / 4


def test_a_proxy_without_randomness_has_one_row() -> None:
    rng = np.random.default_rng(0)
    truth, size = rng.normal(size=(2, 40))
    first = truth + rng.normal(size=(3, 40))
    once = paired_difference(first, size, truth, resamples=100)
    assert once == paired_difference(first, [size] * 3, truth, resamples=100)
    assert paired_difference(size, first, truth, resamples=100).value == pytest.approx(-once.value)
    with pytest.raises(UserError, match="first proxy has 3 repeats, the second 2"):
        paired_difference(first, first[:2], truth)
    as_scores = [scores(*row) for row in first]
    assert paired_quality(as_scores, scores(*size), truth, resamples=100) == once


def test_a_difference_of_perfect_orders_has_a_width() -> None:
    truth = np.arange(9.0)
    found = paired_difference(truth, -truth, truth)
    assert found.value == 2 and found.low < 2 <= found.high
    same = paired_difference(truth, truth**3, truth)
    assert (same.low, same.value, same.high) == (0, 0, 0), "equal orders differ by nothing"
