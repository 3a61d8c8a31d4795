"""The default executor: few networks here, many in worker processes, with the same digits."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import parse_list, threads
from epochzero.engine.population.grouping import Estimate
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
    monkeypatch.setattr("epochzero.engine.resources.cores", lambda: 16)
    assert [Auto().workers, Auto(threads=3).workers, Auto(threads=9).workers] == [8, 2, 1]
    assert [Auto(device="cuda").workers, Auto(device="mps").workers] == [auto.GPU_WORKERS, 1]
    assert type(executor_of()) is Auto
    assert type(executor_of(workers=2)) is Processes
    assert type(executor_of(workers=1)) is Local
    with pytest.raises(UserError, match="'local' takes no workers"):
        executor_of("local", workers=2)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Auto]:
    """As on a GPU whose networks run one by one and leave it idle; the task itself is on the CPU."""
    monkeypatch.setattr("epochzero.engine.resources.cores", lambda: 4)
    monkeypatch.setattr(auto, "GPU_START", 0.0)
    monkeypatch.setattr(auto, "FEW", 2)
    monkeypatch.setattr(auto, "_empty_cache", lambda: None)
    with Auto(threads=1, device="cuda") as executor:
        monkeypatch.setattr(executor, "_estimate", lambda task, archs: Estimate(True, 1e-9))
        yield executor


def test_networks_that_leave_a_gpu_idle_go_to_workers_with_the_same_digits(gpu: Auto) -> None:
    task, archs = made()
    scored = gpu.score(task, archs)
    assert gpu._crew is not None and gpu._crew.workers == 4
    assert values(scored) == values(Local(1).score(task, archs))
    process = next(iter(gpu._crew._all))._process
    gpu.__exit__(None, None, None)
    assert process.poll() is not None, "no process is left"


@pytest.mark.parametrize(
    ("estimate", "start"),
    [
        (Estimate(False, 1e-9), 0.0),  # populations
        (Estimate(True, 1e9), 0.0),  # the device is busy
        (Estimate(True, 1e-9), 1e9),  # too few networks
    ],
)
def test_where_workers_do_not_pay_a_gpu_is_for_this_process(
    gpu: Auto, monkeypatch: pytest.MonkeyPatch, estimate: Estimate, start: float
) -> None:
    monkeypatch.setattr(gpu, "_estimate", lambda task, archs: estimate)
    monkeypatch.setattr(auto, "GPU_START", start)
    task, archs = made()
    assert values(gpu.score(task, archs)) == values(Local(1).score(task, archs))
    assert gpu._crew is None


def test_a_full_gpu_has_fewer_workers_and_the_same_batch(gpu: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    real = Processes.score_chunks

    def full(self: Processes, task: Task, cut: Any) -> Any:
        sizes.append((self.workers, task.batch.size))
        if self.workers > 2:
            raise MachineError("Out of memory on one network with 7 parameters at batch size 2: use a smaller one.")
        return real(self, task, cut)

    monkeypatch.setattr(Processes, "score_chunks", full)
    task, archs = made()
    assert values(gpu.score(task, archs)) == values(Local(1).score(task, archs))
    assert sizes == [(4, 2), (2, 2)]


def test_workers_that_fail_on_a_gpu_are_not_tried_again(gpu: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise MachineError("3 workers died")

    monkeypatch.setattr(Processes, "score_chunks", fail)
    task, archs = made()
    assert values(gpu.score(task, archs)) == values(Local(1).score(task, archs))
    assert (gpu.workers, gpu._crew) == (1, None)
