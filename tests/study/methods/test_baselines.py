"""Local search, REINFORCE, TPE, TE-NAS' pruning and top-k: each against what it should do by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.study.methods.base import Pool, Wanted
from epochzero.study.methods.local_search import LocalSearch
from epochzero.study.methods.reinforce import Reinforce
from epochzero.study.methods.te_nas import TENAS
from epochzero.study.methods.top_k import TopK
from epochzero.study.methods.tpe import TPE
from tests.study.methods.kin import Digits, Family

SPACE = Digits()
BEST = (4,) * 6


def searched(search: Any, evaluations: int, merit: Any = sum) -> list[Any]:
    """Everything that was asked for, in order."""
    asked: list[Any] = []
    while len(asked) < evaluations:
        archs = search.ask(min(search.batch, evaluations - len(asked)))
        if not archs:
            break
        search.tell(archs, [merit(arch) for arch in archs])
        asked += archs
    assert len(set(asked)) == len(asked), "an architecture came twice"
    return asked


# Local search


def test_local_search_looks_at_all_neighbours_before_it_moves() -> None:
    search = LocalSearch(SPACE, 0, batch=5)
    asked = searched(search, 200)
    start, first = asked[0], asked[1:25]
    assert sorted(first) == sorted(SPACE.neighbours(start)), "24 neighbours of six places with four other digits"
    best = max(map(sum, first))
    assert any(
        sum(centre) == best
        and all(sum(a != b for a, b in zip(arch, centre, strict=True)) == 1 for arch in asked[25:40])
        for centre in first
    ), "then those of one of the best"
    assert BEST in asked


def test_local_search_starts_anew_at_a_peak() -> None:
    """A plateau has no better neighbour: each start is followed by its neighbours and then by another start."""
    search = LocalSearch(SPACE, 1)
    asked = searched(search, 60, lambda arch: 1.0)
    assert search.here is None or search.here != asked[0]
    assert any(sum(a != b for a, b in zip(arch, asked[0], strict=True)) > 1 for arch in asked[25:])


def test_local_search_bears_networks_without_scores() -> None:
    asked = searched(LocalSearch(SPACE, 2), 300, lambda arch: None if arch[0] == 0 else sum(arch))
    assert BEST in asked
    assert len(searched(LocalSearch(SPACE, 2), 100, lambda arch: None)) == 100


def test_local_search_goes_by_revised_merits() -> None:
    search = LocalSearch(SPACE, 0, batch=25)
    start = search.ask(25)
    search.tell(start, [1.0])
    around = search.ask(25)
    search.revise(np.array([0.5]))
    search.tell(around, [0.7] + [0.1] * (len(around) - 1))
    assert search.here == around[0], "0.7 is more than the revised 0.5"


def test_local_search_needs_neighbours() -> None:
    with pytest.raises(UserError, match="needs a space that knows an architecture's neighbours"):
        LocalSearch(Family(), 0)


# REINFORCE


def test_the_policy_moves_towards_what_is_better() -> None:
    search = Reinforce(SPACE, 0)
    assert np.allclose(search.policy, 0.2)
    asked = searched(search, 400)
    assert search.policy.argmax(axis=1).min() >= 3 and search.policy.max(axis=1).min() > 0.5, "large digits are better"
    assert np.mean([sum(arch) for arch in asked[60:100]]) > np.mean([sum(arch) for arch in asked[:20]]) + 3


def test_the_gradient_is_that_of_the_log_probability() -> None:
    """One step by hand: the baseline of the first network is its own merit; the second is better by one spread unit."""
    search = Reinforce(SPACE, 0, rate=0.5)
    (one,) = search.ask(1)
    search.tell([one], [1.0])
    assert np.allclose(search.theta, 0), "nothing is better or worse than the only one"
    (two,) = search.ask(1)
    before = search.policy
    search.tell([two], [3.0])
    grown = search.policy - before
    assert all(grown[place, digit] == max(grown[place]) > 0 for place, digit in enumerate(two))
    assert np.allclose(search.policy.sum(axis=1), 1)


def test_the_unit_of_the_merit_does_not_matter() -> None:
    asked = [searched(Reinforce(SPACE, 3), 60, lambda arch, unit=unit: unit * sum(arch)) for unit in (1, 1024)]
    assert asked[0] == asked[1]


def test_reinforce_without_scores_learns_nothing() -> None:
    search = Reinforce(SPACE, 0)
    searched(search, 30, lambda arch: None)
    assert np.allclose(search.policy, 0.2)


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": math.inf}, {"momentum": 1.0}])
def test_rates_that_cannot_be(options: Any) -> None:
    with pytest.raises(UserError, match="a rate above 0 and a momentum of 0 to 1"):
        Reinforce(SPACE, 0, **options)


@pytest.mark.parametrize("make", [Reinforce, TENAS, TPE])
def test_a_space_of_another_kind_is_refused(make: Any) -> None:
    with pytest.raises(
        UserError, match=r"needs a space with the same choices at a fixed number of places, .* family is"
    ):
        make(Family(), 0)


# TPE


def test_tpe_finds_good_networks_and_is_the_same_again() -> None:
    pytest.importorskip("optuna")
    first, again, other = (searched(TPE(SPACE, seed), 80) for seed in (0, 0, 1))
    assert first == again != other
    assert max(map(sum, first[-30:])) >= 22 > np.mean([sum(arch) for arch in first[:10]])


def test_tpe_bears_networks_without_scores_and_small_spaces() -> None:
    pytest.importorskip("optuna")

    class Two(Digits):
        places = 2

    asked = searched(TPE(Two(), 0), 100, lambda arch: None if arch[0] == 1 else sum(arch))
    assert len(asked) == 25, "all there are"
    with pytest.raises(UserError, match="starts with at least 1"):
        TPE(SPACE, 0, startup=0)


# TE-NAS


def test_every_round_prunes_the_least_important_choice_at_each_place() -> None:
    """Against means that are taken anew from everything that was told in the round."""
    search = TENAS(SPACE, 0, networks=200, batch=50)
    asked = [search.ask(50)]
    round_: list[Any] = []
    left = [list(some) for some in search.left]
    for _ in range(4):
        while search.left == left:
            merits = {arch: float(sum(arch)) for arch in asked[-1]}
            search.tell(list(merits), list(merits.values()))
            round_ += merits.items()
            asked.append(search.ask(50))
        assert len(round_) <= 200
        for place, before in enumerate(left):
            means = {
                digit: np.mean([merit for arch, merit in round_ if arch[place] == digit] or [math.inf])
                for digit in before
            }
            (gone,) = set(before) - set(search.left[place])
            assert means[gone] == min(means.values())
        left, round_ = [list(some) for some in search.left], []
    assert all(len(some) == 1 for some in left) and sum(search.chosen or ()) >= 20


def test_the_survivor_is_asked_for_and_ends_the_search() -> None:
    search = TENAS(SPACE, 0, networks=100)
    asked = searched(search, 10_000)
    assert search.chosen is not None and search.chosen in asked
    assert search.ask(5) == []
    assert sum(search.chosen) >= 20


def test_nothing_is_chosen_before_the_end_nor_beyond_the_limits() -> None:
    class Limited(Digits):
        def fits(self, arch: Any) -> bool:
            return bool(sum(arch) <= 20)

    early = TENAS(SPACE, 0, networks=100)
    searched(early, 50)
    assert early.chosen is None
    limited = TENAS(Limited(), 0, networks=100)
    asked = searched(limited, 1000)
    assert all(sum(arch) <= 20 for arch in asked)
    assert limited.chosen is None or sum(limited.chosen) <= 20


def test_pruning_without_any_score_still_ends() -> None:
    search = TENAS(SPACE, 0, networks=20)
    searched(search, 1000, lambda arch: None)
    assert search.over and search.chosen is not None


# Top-k


@pytest.mark.parametrize(("higher", "order"), [(True, "dbca"), (False, "acbd")])
def test_the_best_of_the_pool_come_in_order(higher: bool, order: str) -> None:
    values = {"knas": np.array([1.0, np.nan, 3.0, 2.0, 4.0])}
    search = TopK(SPACE, 0, Pool(["a", "x", "b", "c", "d"], values, {"knas": higher}), batch=2)
    assert "".join(searched(search, 10, lambda arch: 0.0)) == order
    assert search.ask(1) == []


def test_what_top_k_wants() -> None:
    assert TopK.wants({"proxy": "nasi_trace", "networks": 7}) == Wanted(["nasi_trace"], 7)
