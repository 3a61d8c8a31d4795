"""Processes that compile the same kernels share them out."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import parse
from epochzero.engine.gpu import compiling
from epochzero.engine.gpu.compiling import Claims
from epochzero.executors import compile_ahead
from epochzero.registry import spaces
from epochzero.study.task import Task


def test_each_kernel_is_compiled_by_one(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    kernels = [("conv", 16), ("conv", 32), ("pool", 16), ("conv", 16)]
    taken = [
        (a.take(kernel), b.take(kernel))
        for kernel, (a, b) in zip(kernels, [(one, other), (other, one)] * 2, strict=True)
    ]
    assert taken == [(True, False), (True, False), (True, False), (False, False)]


def test_all_wait_for_the_last(tmp_path: Path) -> None:
    mine, other = Claims(tmp_path), Claims(tmp_path)
    assert other.take("slow") and not mine.take("slow")
    waited: list[float] = []

    def wait() -> None:
        start = time.monotonic()
        mine.wait()
        waited.append(time.monotonic() - start)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    assert not waited
    other.done()
    thread.join(5)
    assert waited


def test_nobody_waits_for_one_that_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="uninitialised"), compiling.together(tmp_path):
        assert compiling.claims is not None and compiling.claims.take("one")
        raise RuntimeError("uninitialised")
    assert compiling.claims is None
    other = Claims(tmp_path)
    other._seen.update(path.stem for path in tmp_path.iterdir())
    start = time.monotonic()
    other.wait()
    assert time.monotonic() - start < 1


def test_what_fails_while_kernels_are_compiled_is_left_to_scoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def fails(networks: list[object], *_: object) -> None:
        asked.append(len(networks))
        raise ZeroDivisionError

    monkeypatch.setattr(compile_ahead, "score_population", fails)
    task = Task(spaces["nb201"], [parse("params")], data.pink((3, 8, 8), size=2))
    compile_ahead.compile_share(task, tmp_path)
    assert asked == [1] and compiling.claims is None  # a CPU forms no populations


def test_kernels_run_again_afterwards(tmp_path: Path) -> None:
    with compiling.together(tmp_path):
        assert compiling.claims is not None and compiling.claims.take("one")
    assert compiling.claims is None
    assert [path.suffix for path in tmp_path.iterdir()] == [".done"]


def test_a_kernel_is_compiled_or_launched_as_ever(tmp_path: Path) -> None:
    """Triton's internals may change: then there is no compiling ahead."""
    warmed: list[object] = []
    param = SimpleNamespace(is_constexpr=False, do_not_specialize=False)
    compiled = SimpleNamespace(_init_handles=lambda: warmed.append("handles"))
    kernel: Any = SimpleNamespace(__name__="add", params=[param], warmup=lambda *given, **options: compiled)
    assert not compiling.compiled_ahead(kernel, (1,), [16], {}), "not asked for"
    with compiling.together(tmp_path):
        assert compiling.compiled_ahead(kernel, (1,), [16], {}) and warmed == ["handles"]
        assert compiling.compiled_ahead(kernel, (1,), [32], {}) and len(warmed) == 1, "the same kernel"
        assert compiling.compiled_ahead(kernel, (1,), [torch.zeros(4)], {}) and len(warmed) == 2
        del kernel.params
        assert not compiling.compiled_ahead(kernel, (1,), [1], {})
        kernel.params = [param]
        kernel.warmup = lambda *given, **options: object()
        assert not compiling.compiled_ahead(kernel, (1,), [1], {}), "nothing to call _init_handles of"
