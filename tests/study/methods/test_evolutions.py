"""The published evolutions: who has children, how many, how far from the parent, and what ranks change."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from epochzero.errors import UserError
from epochzero.study.methods.evolution import Evolution
from epochzero.study.methods.evolution_az import AZEvolution
from epochzero.study.methods.evolution_nasrec import NASRecEvolution
from epochzero.study.methods.evolution_zen import FOUNDERS, ZenEvolution
from tests.study.methods.kin import Digits, Family

# NASRec


def test_nasrec_mutates_less_and_less_as_published() -> None:
    """m = (240 - generation) // max(20, 48) + 1, counted by hand."""
    search = NASRecEvolution(Family(), 0)
    first = search.ask(128)
    search.tell(first, [float(i) for i in range(128)])
    assert {len(child) for child in search.ask(8)} == {1 + 6}
    search = NASRecEvolution(Family(), 0)
    wanted = {0: 6, 1: 5, 48: 5, 49: 4, 96: 4, 97: 3, 144: 3, 145: 2, 192: 2, 193: 1, 239: 1}
    for generation, mutations in wanted.items():
        search.born = 128 + generation * 8 + 1
        assert (search.generation, search.mutations) == (generation, mutations)
        search.born += 7
        assert (search.generation, search.mutations) == (generation, mutations)


def test_nasrec_has_one_parent_in_each_generation_and_drops_the_oldest() -> None:
    search = NASRecEvolution(Family(), 1, population=12, tournament=12, children=4, generations=20)
    first = search.ask(12)
    search.tell(first, [float(i) for i in range(12)])
    assert search.mutations == 20 // 20 + 1
    children = search.ask(4)
    assert {child[:1] for child in children} == {first[-1]}, "the best of all is the parent of all"
    search.tell(children, [100.0, 50.0, 0.0, 0.0])
    assert [arch for _, arch in search.alive] == [*first[4:], *children]
    grandchildren = search.ask(4)
    assert all(arch[: len(children[0])] == children[0] for arch in grandchildren)


def test_nasrec_spends_2048_evaluations() -> None:
    assert NASRecEvolution.budget == 128 + 240 * 8
    with pytest.raises(UserError, match="at least 1 generation, not 0"):
        NASRecEvolution(Family(), 0, generations=0)


# ZenNAS and AZ-NAS


def told(search: Any, rounds: int, merit: Any, n: int = 8) -> list[Any]:
    """Everything that was asked for."""
    asked = []
    for _ in range(rounds):
        archs = search.ask(n)
        search.tell(archs, [merit(arch) for arch in archs])
        asked += archs
    return asked


def test_the_pool_holds_the_best_of_all_by_a_slow_second_version() -> None:
    search = ZenEvolution(Family(), 3, population=20)
    merits: dict[Any, float] = {}

    def merit(arch: Any) -> float:
        merits[arch] = (hash(arch) % 10_007) / 7
        return merits[arch]

    for _ in range(30):
        told(search, 1, merit)
        best = sorted(merits, key=lambda arch: (-merits[arch], search.all.index(arch)))[:20]
        assert [search.all[-number] for _, number in reversed(search.pool)] == best


def test_the_first_children_are_the_founders_and_then_those_of_the_pool() -> None:
    search = ZenEvolution(Family(), 0, population=15)
    first = search.ask(FOUNDERS + 1)
    assert all(arch[:-1] == search.founder for arch in first)
    search.tell(first, [1.0] * len(first))
    later = search.ask(3000)
    parents = Counter(arch[:2] for arch in later)
    assert set(parents) == set(first)
    assert chisquare(list(parents.values())).pvalue > 1e-3, "parents are drawn uniformly"
    far = Counter(len(arch) - 2 for arch in later)
    assert set(far) == {1, 2} and chisquare(list(far.values())).pvalue > 1e-3


def test_a_network_without_a_score_leaves_the_pool_first() -> None:
    search = ZenEvolution(Family(), 0, population=3)
    archs = search.ask(5)
    search.tell(archs, [None, 1.0, None, 2.0, -1e300])
    assert sorted(search.all[-number] for _, number in search.pool) == sorted([archs[1], archs[3], archs[4]])
    assert math.inf not in [abs(merit) for merit, _ in search.pool]


def test_ranks_may_bring_back_what_was_dropped() -> None:
    """AZ-NAS ranks the whole history: nothing is forgotten."""
    search = AZEvolution(Family(), 0, population=3)
    archs = search.ask(6)
    search.tell(archs, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert {search.all[-number] for _, number in search.pool} == set(archs[:2])
    search.revise(np.array([0.0, 1.0, 0.5, 9.0, 8.0, -np.inf]))
    assert [search.all[-number] for _, number in search.pool] == [archs[4], archs[3]]
    search.revise(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert {search.all[-number] for _, number in search.pool} == set(archs[:2]), "the first of equals"


def test_ageing_evolution_goes_by_revised_merits() -> None:
    search = Evolution(Family(), 0, population=4, tournament=4, batch=1)
    first = search.ask(4)
    search.tell(first, [4.0, 3.0, 2.0, 1.0])
    search.revise(np.array([1.0, 2.0, 3.0, 4.0]))
    (child,) = search.ask(1)
    assert child[:-1] == first[3]
    search.tell([child], [0.0])
    search.revise(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    (grandchild,) = search.ask(1)
    assert grandchild[:-1] == child
    assert [arch for _, arch in search.alive] == [*first[1:], child]


@pytest.mark.parametrize("make", [ZenEvolution, AZEvolution, NASRecEvolution, Evolution])
def test_all_of_them_climb(make: Any) -> None:
    asked = told(make(Digits(), 0, population=64), 120, sum)
    assert (4,) * 6 in asked and len(set(asked)) == len(asked)


def test_published_numbers() -> None:
    zen, az = ZenEvolution(Digits(), 0), AZEvolution(Digits(), 0)
    assert (zen.population, zen.budget) == (512, 480_000)
    assert (az.population, az.budget, az.batch) == (1023, 100_000, 64)
    with pytest.raises(UserError, match="at least 1 network, not 0"):
        ZenEvolution(Digits(), 0, population=0)
