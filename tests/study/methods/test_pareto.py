"""NSGA-II: what it asks for, what it keeps, and that it finds fronts that are known."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.registry import searches, spaces
from epochzero.spaces.budget import Budget, BudgetedSpace
from epochzero.study.methods.dominance import first_front, fittest
from epochzero.study.methods.pareto import Pareto
from epochzero_papers.harness.hypervolume import hypervolume

CROSSING = ("nb201", "nats_sss", "nb1shot1_s1", "nb1shot1_s3", "autoformer_tiny", "darts", "transnas_micro")


class Bits:
    """Ten bits; the count of ones in the first half against the count of zeros in it: every network is on the front."""

    name = "bits"
    choices, places = (0, 1), 10

    def sample(self, rng: Random) -> tuple[int, ...]:
        return tuple(rng.choices((0, 1), k=10))

    def mutate(self, arch: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        place = rng.randrange(10)
        return (*arch[:place], 1 - arch[place], *arch[place + 1 :])


class Crossed(Bits):
    def crossover(self, one: tuple[int, ...], other: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        return tuple(rng.choice(pair) for pair in zip(one, other, strict=True))


def merits(arch: tuple[int, ...]) -> tuple[float, float]:
    """Ones at the front are good for the first, zeros at the front for the second; ones at the back harm both."""
    front, back = sum(arch[:5]), sum(arch[5:])
    return front - back, -front - back


def history(search: Any, many: int, told: Any = merits) -> list[Any]:
    asked: list[Any] = []
    while len(asked) < many:
        some = search.ask(min(search.batch, many - len(asked)))
        search.tell(some, [told(arch) for arch in some])
        asked += some
    return asked


@pytest.mark.parametrize("space", [Bits(), Crossed()], ids=["mutation alone", "crossover"])
def test_finds_every_point_of_a_known_front(space: Any) -> None:
    search = Pareto(space, 0, population=12)
    seen = history(search, 300)
    assert len(set(seen)) == 300
    rows = np.array([merits(arch) for arch in seen])
    assert {tuple(rows[i]) for i in first_front(rows)} == {(k, -k) for k in range(6)}
    assert {merits(arch) for arch in search.parents} == {(k, -k) for k in range(6)}


def test_finds_more_of_the_volume_than_random_draws() -> None:
    space = spaces["nb201"]

    def two(arch: Any) -> tuple[float, float]:
        strength = {"none": 0, "avg_pool_3x3": 1, "skip_connect": 2, "nor_conv_1x1": 5, "nor_conv_3x3": 6}
        return float(sum(strength[op] * (i + 1) for i, op in enumerate(arch))), -float(
            sum("conv" in op for op in arch) * 10 + sum("3x3" in op for op in arch)
        )

    def volume(name: str, seed: int) -> float:
        seen = history(searches[name](space, seed), 160, two)
        return hypervolume(np.array([two(arch) for arch in seen]), (0.0, -100.0))

    assert all(volume("pareto", seed) > volume("random", seed) for seed in range(4))


def test_a_larger_budget_begins_with_the_smaller_one() -> None:
    short, long = (history(Pareto(spaces["nb201"], 3), many, _lengths) for many in (61, 150))
    assert long[:61] == short
    assert history(Pareto(spaces["nb201"], 4), 61, _lengths) != short


def _lengths(arch: Any) -> tuple[float, float]:
    text = spaces["nb201"].text(arch)
    return float(len(text)), -float(text.count("conv"))


def test_networks_without_all_scores_are_no_parents() -> None:
    search = Pareto(Crossed(), 1, population=8)
    history(search, 64, lambda arch: None if arch[0] else merits(arch))
    assert search.parents
    assert not any(arch[0] for arch in search.parents)
    nothing = Pareto(Crossed(), 1, population=8)
    assert len(set(history(nothing, 40, lambda arch: None))) == 40


def test_survivors_are_the_best_of_parents_and_children() -> None:
    search = Pareto(Crossed(), 2, population=8, batch=8)
    first = search.ask(8)
    search.tell(first, [merits(arch) for arch in first])
    second = search.ask(8)
    both = np.array([merits(arch) for arch in [*search.parents, *second]])
    expected = [[*search.parents, *second][i] for i in fittest(both, 8)]
    search.tell(second, [merits(arch) for arch in second])
    assert search.parents == expected


def test_ends_where_a_small_space_ends() -> None:
    space = spaces["mlp"]
    search = Pareto(space, 0, population=4, batch=7)
    seen: list[Any] = []
    while some := search.ask(7):
        search.tell(some, [(float(arch), -float(arch)) for arch in some])
        seen += some
    assert sorted(seen) == sorted(space)


def test_children_stay_within_the_limits() -> None:
    space = spaces["nb201"]
    limited = BudgetedSpace(space, Budget(max_params=300_000), 10, (3, 32, 32))
    seen = history(Pareto(limited, 0, population=10), 80, _lengths)
    assert max(space.plan(arch).params for arch in seen) <= 300_000


@pytest.mark.parametrize("name", CROSSING)
def test_children_are_of_the_space_and_of_their_parents(name: str) -> None:
    space, rng = spaces[name], Random(0)
    for _ in range(20):
        one, other = space.sample(rng), space.sample(rng)
        child = space.crossover(one, other, rng)
        assert space.parse(space.text(child)) == child
        assert space.crossover(one, one, rng) == one
        assert _parts(child) <= _parts(one) | _parts(other)


def test_both_parents_have_a_part_in_it() -> None:
    space, rng = spaces["nb201"], Random(0)
    one, other = ("none",) * 6, ("skip_connect",) * 6
    children = {space.crossover(one, other, rng) for _ in range(1000)}
    assert len(children) == 2**6


def _parts(arch: Any) -> set[Any]:
    """The places of an architecture with what is there."""
    if hasattr(arch, "normal"):
        return {
            (kind, i, cell[i : i + 2]) for kind, cell in (("n", arch.normal), ("r", arch.reduce)) for i in (0, 2, 4, 6)
        }
    if hasattr(arch, "layers"):
        return {arch.width, *enumerate(arch.layers)}
    if hasattr(arch, "sources"):
        return {*enumerate(arch.ops), *enumerate(arch.sources)}
    return set(enumerate(arch))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"population": 1}, "population of 2 to 100,000"),
        ({"crossover": 1.5}, "probability from 0 to 1 for 'crossover', not 1.5"),
        ({"mutation": -0.1}, "probability from 0 to 1 for 'mutation', not -0.1"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Pareto(Bits(), 0, **options)
