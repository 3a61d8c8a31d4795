"""The number of torch's threads: the faster one is kept, a given one is left alone, quotas count as cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.engine import resources, threads

BATCH = data.pink((3, 8, 8), size=64)
ARCH = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that may use two threads and was given none."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "AT_FIRST", 2)
    for name, value in {"given": False, "before": 2, "fastest": None}.items():
        monkeypatch.setattr(threads._State, name, value)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("faster", [1, 2])
def test_the_faster_number_is_kept_and_torch_is_left_alone(faster: int, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[int, int]] = []
    seconds = [0.0]
    monkeypatch.setattr(threads, "time", SimpleNamespace(perf_counter=lambda: seconds[0]))

    def score(few: Batch) -> None:
        timed.append((torch.get_num_threads(), few.part(0)[0].shape[0]))
        seconds[0] += 0.01 if torch.get_num_threads() == faster else 0.02

    for _ in range(2):
        with threads.fastest_threads(BATCH, score):
            assert torch.get_num_threads() == faster
            before = len(timed)
        assert torch.get_num_threads() == 2
    assert len(timed) == before, "timed once"
    assert {number for number, _ in timed} == {1, 2} and {size for _, size in timed} == {4}


@pytest.mark.usefixtures("two")
def test_a_given_number_is_not_timed() -> None:
    def score(few: Batch) -> None:
        raise AssertionError

    with threads.torch_threads(2), threads.fastest_threads(BATCH, score):
        assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with threads.fastest_threads(BATCH, score):
        assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("two")
def test_what_cannot_be_timed_runs_as_it_is() -> None:
    def score(few: Batch) -> None:
        raise RuntimeError("too few samples")

    with threads.fastest_threads(BATCH, score):
        assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two")
def test_a_score_by_one_thread_is_that_of_a_process_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ez.score(ARCH, "grad_norm", space="nb201", data=BATCH, threads=1)
    assert threads._State.fastest is None
    monkeypatch.setattr(threads._State, "given", True)
    torch.set_num_threads(1)
    assert ez.score(ARCH, "grad_norm", space="nb201", data=BATCH) == given


def test_a_quota_counts_as_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(resources, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resources, "PROC", tmp_path)
    (tmp_path / "self").mkdir()

    def cores(cgroup: str, **files: str) -> int:
        (tmp_path / "self/cgroup").write_text(cgroup)
        for name, content in files.items():
            file = tmp_path / "groups" / name.replace("__", "/").replace("cpu_", "cpu.")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return resources.cores()

    assert cores("") == 8
    assert cores("0::/a/b\n", a__b__cpu_max="max 100000\n") == 8
    assert cores("0::/a/b\n", a__cpu_max="250000 100000\n") == 2, "of the group around it"
    assert cores("0::/a/b\n", cpu_max="50000 100000\n") == 1, "at least one"
    assert cores("1:cpu:/\n", cpu__cpu_cfs_quota_us="-1", cpu__cpu_cfs_period_us="100000") == 8
    assert cores("1:cpu:/c\n", cpu__c__cpu_cfs_quota_us="300000", cpu__c__cpu_cfs_period_us="100000") == 3


def test_copies_that_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PROC", tmp_path)
    monkeypatch.setattr(resources, "GROUPS", tmp_path)
    assert resources.copies() == float("inf")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Name: python\nVmHWM:\t  1000 kB\n")
    (tmp_path / "meminfo").write_text("MemTotal: 99999 kB\nMemAvailable:  3500 kB\n")
    assert resources.copies() == 3.5
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text("3072000")
    (tmp_path / "memory.current").write_text("1024000")
    assert resources.copies() == 2
