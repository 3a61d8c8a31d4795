"""The default executor: few networks here, many in worker processes, with the same digits."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import parse_list, threads
from epochzero.errors import MachineError, UserError
from epochzero.executors import auto, executor_of
from epochzero.executors.auto import Auto
from epochzero.executors.local import Local
from epochzero.executors.processes import Processes
from epochzero.registry import spaces
from epochzero.spaces.mlp import MLP
from epochzero.study.task import Task

BATCH = data.pink((3, 8, 8), size=2)


def made(space: Any = None) -> tuple[Task, list[Any]]:
    space, rng = space or spaces["nb201"], Random(0)
    return Task(space, parse_list("grad_norm,synflow"), BATCH), [space.sample(rng) for _ in range(6)]


def values(scored: Any) -> list[Any]:
    return [scores for scores, _ in scored]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Auto]:
    """On two cores, where every start pays."""
    monkeypatch.setattr(threads, "AT_FIRST", 2)
    monkeypatch.setattr(auto, "START", 0.0)
    with Auto() as executor:
        yield executor


def test_many_networks_go_to_workers_with_the_same_digits(two: Auto) -> None:
    task, archs = made()
    scored = two.score(task, archs)
    assert two._crew is not None and two._crew.workers == 2
    assert values(scored) == values(Local(1).score(task, archs))
    assert two.about() == {"name": "auto", "workers": 2, "threads": torch.get_num_threads()}


def test_few_networks_stay_here(two: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    task, archs = made()
    for arch in archs[:3]:
        two.score(task, [arch])
    assert two._crew is None
    monkeypatch.setattr(auto, "START", 1e9)
    two.score(task, archs)
    assert two._crew is None
    assert two._spent > 0
    monkeypatch.setattr(auto, "START", two._spent)
    two.score(task, archs)
    assert two._crew is not None, "once they have taken longer than a start"


def test_what_workers_do_not_know_is_scored_here(two: Auto) -> None:
    task, archs = made(MLP())  # a space of this process alone
    assert values(two.score(task, archs)) == values(Local(1).score(task, archs))
    assert two.workers == 1


@pytest.mark.parametrize("error", [UserError("unknown here"), MachineError("3 workers died")])
def test_where_workers_fail_this_process_scores(two: Auto, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(Processes, "score", fail)
    task, archs = made()
    assert values(two.score(task, archs)) == values(Local(1).score(task, archs))
    assert (two.workers, two._crew) == (1, None)


def test_without_memory_for_workers_this_process_scores(two: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "copies", lambda: 1.5)
    task, archs = made()
    assert len(two.score(task, archs)) == 6
    assert (two.workers, two._crew) == (1, None)


def test_names_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "AT_FIRST", 8)
    assert [Auto().workers, Auto(threads=3).workers, Auto(threads=9).workers, Auto(device="cuda").workers] == [
        8,
        2,
        1,
        1,
    ]
    assert type(executor_of()) is Auto
    assert type(executor_of(workers=2)) is Processes
    assert type(executor_of(workers=1)) is Local
    with pytest.raises(UserError, match="'local' takes no workers"):
        executor_of("local", workers=2)
