"""Groups of networks: the test is wrong as often as it says, and the groups are those that a reader expects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import tukey_hsd

from epochzero.stats.groups import grouped, least_difference


@pytest.mark.parametrize(("networks", "draws"), [(2, 3), (6, 3), (6, 10)])
def test_equal_networks_differ_in_one_ranking_of_twenty(networks: int, draws: int) -> None:
    """Draws that all networks share do not count."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(2000):
        values = rng.normal(size=(networks, draws)) + 10 * rng.normal(size=draws)
        wrong += np.ptp(values.mean(1)) > least_difference(values)
    assert wrong / 2000 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 2000))


def test_ranks_of_all_draws_together_are_tested_as_well() -> None:
    """As of `auto` and other combinations of ranks, by three noisy scores of three equal networks in three draws."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(1500):
        ranks = rng.normal(size=(9, 3)).argsort(0).argsort(0)
        wrong += np.ptp((merits := np.log1p(ranks).sum(1).reshape(3, 3)).mean(1)) > least_difference(merits)
    assert wrong / 1500 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 1500))


def test_without_common_draws_it_is_nearly_the_usual_test() -> None:
    """Which estimates the errors with more degrees of freedom, as no draw is shared."""
    values = np.random.default_rng(2).normal(size=(4, 200))
    usual = tukey_hsd(*values).confidence_interval()
    width = np.ravel(usual.high - usual.low)[1] / 2
    assert least_difference(values) == pytest.approx(width, rel=0.02)


def test_one_draw_or_network_has_no_test() -> None:
    assert math.isnan(least_difference(np.ones((4, 1)))) and math.isnan(least_difference(np.ones((1, 4))))


def test_a_group_ends_where_a_network_differs_from_its_first() -> None:
    assert grouped(np.array([9.0, 8.5, 7.9, 7.5, 6.8, 0.0]), 1.0) == [1, 1, 2, 2, 3, 4]
    assert grouped(np.array([2.0, 2.0, 1.0]), 0.0) == [1, 1, 2]
