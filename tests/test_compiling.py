"""Processes that compile the same kernels share them out."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from epochzero.plan.ops import compiling
from epochzero.plan.ops.compiling import Claims


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


def test_kernels_run_again_afterwards(tmp_path: Path) -> None:
    with compiling.together(tmp_path):
        assert compiling.claims is not None and compiling.claims.take("one")
    assert compiling.claims is None
    assert [path.suffix for path in tmp_path.iterdir()] == [".done"]
