"""How many networks run side by side: as many as there is room for, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from epochzero import data
from epochzero.engine import PlanNetwork, parse, score
from epochzero.engine.passes import Need
from epochzero.engine.score import _in_groups, _needed, population_size
from epochzero.registry import spaces

NB201 = spaces["nb201"]
BATCH = data.pink((3, 8, 8), size=64)
SNIP, GRASP, SYNFLOW = (parse(name).needs for name in ("snip", "grasp", "synflow"))


def networks(count: int) -> list[PlanNetwork]:
    rng = Random(0)
    return [PlanNetwork(NB201.plan(NB201.sample(rng), 10, (3, 8, 8))) for _ in range(count)]


def groups(
    monkeypatch: pytest.MonkeyPatch, room: float, some: list[PlanNetwork], needs: Sequence[Need] = SNIP
) -> list[int]:
    monkeypatch.setattr(score, "_room", lambda *_: room)
    found = list(_in_groups(some, needs, BATCH, "always"))
    assert [network for group in found for network in group] == some
    assert all(len(group) == 1 or sum(_needed(n, needs, BATCH) for n in group) < room for group in found)
    return [len(group) for group in found]


def test_a_population_takes_the_room_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    some = networks(20)
    everything = sum(_needed(network, SNIP, BATCH) for network in some)
    assert groups(monkeypatch, 2 * everything, some) == [20]
    halves = groups(monkeypatch, everything / 2, some)
    assert len(halves) in (2, 3) and min(halves[:2]) > 5
    assert max(groups(monkeypatch, everything / 2, some, GRASP)) < max(halves)


def test_a_pass_of_one_sample_leaves_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    some = networks(20)
    room = sum(_needed(network, SNIP, BATCH) for network in some) / 4
    assert len(groups(monkeypatch, room, some, SYNFLOW)) < len(groups(monkeypatch, room, some, SNIP))
    assert groups(monkeypatch, room, some, [*SYNFLOW, *SNIP]) == groups(monkeypatch, room, some, SNIP)


def test_networks_that_are_too_large_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups(monkeypatch, 1.0, networks(3)) == [1, 1, 1]
    assert population_size(networks(1)[0], BATCH, lockstep="always") == 1


def test_no_population_is_larger_than_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "POPULATION", 4)
    assert groups(monkeypatch, float("inf"), networks(10)) == [4, 4, 2]


def test_on_a_cpu_each_runs_alone_unless_asked() -> None:
    (one,) = networks(1)
    assert population_size(one, BATCH) == population_size(one, BATCH, lockstep="never") == 1
    assert population_size(one, BATCH, lockstep="always") == score.POPULATION
