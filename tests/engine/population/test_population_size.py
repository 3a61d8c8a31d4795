"""The size of populations: as many networks as memory allows, in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from epochzero import data
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork, parse
from epochzero.engine.gpu.routine import blocks_with_routines
from epochzero.engine.passes import Need
from epochzero.engine.population import grouping
from epochzero.engine.population.grouping import (
    MemoryBudget,
    Routines,
    _Group,
    _loads,
    _needed,
    in_groups,
    population_size,
)
from epochzero.engine.population.population import Population
from epochzero.registry import spaces

BATCH, IMAGES = (data.pink((3, size, size), size=64) for size in (8, 64))
SNIP, GRASP, SYNFLOW = (parse(name).needs for name in ("snip", "grasp", "synflow"))


def networks(count: int, space: str = "nb201", size: int = 8) -> list[PlanNetwork]:
    found, rng = spaces[space], Random(0)
    return [PlanNetwork(found.plan(found.sample(rng), 10, (3, size, size))) for _ in range(count)]


def needed(some: Sequence[Network], needs: Sequence[Need], batch: Batch, routines: Routines = frozenset()) -> float:
    """Bytes that they take together."""
    loads = _loads(needs, batch)
    return sum(_needed(network, loads, routines) for network in some)


def groups(
    monkeypatch: pytest.MonkeyPatch, room: float, some: list[PlanNetwork], needs: Sequence[Need] = SNIP
) -> list[int]:
    monkeypatch.setattr(MemoryBudget, "bytes_for", lambda *_: room)
    found = list(in_groups(some, needs, BATCH, "always", MemoryBudget()))
    assert [network for group in found for network in group] == some
    assert all(len(group) == 1 or needed(group, needs, BATCH) < room for group in found)
    return [len(group) for group in found]


def test_a_population_takes_the_room_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    some = networks(20)
    everything = needed(some, SNIP, BATCH)
    assert groups(monkeypatch, 2 * everything, some) == [20]
    halves = groups(monkeypatch, everything / 2, some)
    assert len(halves) in (2, 3) and min(halves[:2]) > 5
    assert max(groups(monkeypatch, everything / 2, some, GRASP)) < max(halves)


def test_networks_of_one_device_run_side_by_side() -> None:
    (one,) = networks(1)
    assert Population.fits([one, PlanNetwork(one.plan)])
    assert not Population.fits([one, PlanNetwork(one.plan, device="cuda")])


def test_a_pass_of_one_sample_leaves_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    some = networks(20)
    room = needed(some, SNIP, BATCH) / 4
    assert len(groups(monkeypatch, room, some, SYNFLOW)) < len(groups(monkeypatch, room, some, SNIP))
    assert groups(monkeypatch, room, some, [*SYNFLOW, *SNIP]) == groups(monkeypatch, room, some, SNIP)


def test_networks_that_are_too_large_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups(monkeypatch, 1.0, networks(3)) == [1, 1, 1]
    assert population_size(networks(1)[0], BATCH, lockstep="always") == 1


def test_no_population_is_larger_than_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "POPULATION", 4)
    assert groups(monkeypatch, float("inf"), networks(10)) == [4, 4, 2]


def test_on_a_cpu_each_runs_alone_unless_asked() -> None:
    (one,) = networks(1)
    assert population_size(one, BATCH) == population_size(one, BATCH, lockstep="never") == 1
    assert population_size(one, BATCH, lockstep="always") == grouping.POPULATION


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run by routines where they have some."""
    monkeypatch.setattr(grouping, "_routines", lambda network: blocks_with_routines(network.plan))


large = partial(networks, size=64)
"""whose maps outweigh their parameters"""


def group_of(some: list[PlanNetwork], needs: Sequence[Need] = SNIP) -> _Group:
    group = _Group(some[0], _loads(needs, IMAGES), float("inf"))
    assert all(group.adds(network) for network in some[1:])
    return group


@pytest.mark.parametrize("space", ["nats_sss", "transnas_macro"])
def test_networks_of_several_skeletons_are_not_counted_as_running_by_routines(space: str, on_gpu: None) -> None:
    """Each alone would, and so would copies of it."""
    some = large(8, space)
    assert group_of(some).taken == pytest.approx(needed(some, SNIP, IMAGES))
    assert group_of(some[:1] * 8).taken < 0.7 * 8 * needed(some[:1], SNIP, IMAGES)


def test_blocks_that_run_by_routines_are_counted_so(on_gpu: None) -> None:
    """All but the head of NAS-Bench-201; of TransNAS-Bench-101 not the cells that shift their skips."""
    shares = []
    for space in ("nb201", "transnas_micro"):
        some = large(6, space)
        group = group_of(some)
        plain = needed(some, SNIP, IMAGES)
        assert group.taken == pytest.approx(needed(some, SNIP, IMAGES, group.routines))
        shares.append(group.taken / plain)
    assert shares[0] < 0.6 < shares[1] < 0.9


def test_second_derivatives_need_routines_throughout(on_gpu: None) -> None:
    some = large(6, "transnas_micro")
    assert group_of(some, GRASP).taken == pytest.approx(needed(some, GRASP, IMAGES))
    some = large(6, "nb201")
    assert group_of(some, GRASP).taken < 0.6 * needed(some, GRASP, IMAGES)


def test_one_that_would_end_the_routines_of_a_full_group_begins_another(
    monkeypatch: pytest.MonkeyPatch, on_gpu: None
) -> None:
    (first,), other = large(1, "nats_sss"), large(2, "nats_sss")[1]
    alike = [first] * 4
    monkeypatch.setattr(MemoryBudget, "bytes_for", lambda *_: 1.05 * group_of(alike).taken)
    assert [len(group) for group in in_groups([*alike, other], SNIP, IMAGES, "always", MemoryBudget())] == [4, 1]
