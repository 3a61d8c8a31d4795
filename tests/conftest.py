"""One thread for each of pytest's processes: small networks gain nothing from more, and rounding stays the same."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import Fresh

os.environ.setdefault("OMP_NUM_THREADS", "1")

FIRST = {
    *("test_executors_ray.py", "test_executors.py", "test_undisturbed.py", "test_contracts.py", "test_guides.py"),
    *("test_recommender_guide.py", "test_recommender_sweep.py", "test_recommender_product.py", "test_resume.py"),
    *("test_contracts_elsewhere.py", "test_export.py", "test_export_ensemble.py", "test_train_processes.py"),
}
"""files of few but long tests: begun late, one would still run when everything else is done"""
TOGETHER = {
    *("test_export.py", "test_export_ensemble.py", "test_recommender_guide.py", "test_recommender_product.py"),
    *("test_docs.py",),
}
"""files for one process: each makes ONNX models, and the first takes seconds to load what they all need"""


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background; tests send Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.option.loadscopereorder = False  # pytest-xdist would begin with the files of the most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in FIRST, -tests[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, but for the files that belong together."""
    if config.option.dist != "loadfile":
        return None
    scheduler = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    by_file = scheduler._split_scope
    scheduler._split_scope = lambda test: "together" if Path(by_file(test)).name in TOGETHER else by_file(test)
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collected tests stay to the end, so the garbage collector need not visit them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def onnx_rules() -> Iterator[None]:
    """The ONNX forms of operations, which torch otherwise reads from source for every model."""
    registration = pytest.importorskip("torch.onnx._internal.exporter._registration")
    read = staticmethod(cache(registration.ONNXRegistry.from_torchlib))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration.ONNXRegistry, "from_torchlib", read)
        yield


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    with Fresh(tmp_path_factory.mktemp("fresh")) as started:
        yield started


@pytest.fixture(scope="module")
def shallow_nb201() -> Iterator[None]:
    """Networks of nb201 with one cell in each stage, not five, for tests that are as good with fewer layers."""
    yield from with_cells(1)


@pytest.fixture(scope="module")
def repeating_nb201() -> Iterator[None]:
    """With two cells in each stage, for tests of what is done about a cell that comes again."""
    yield from with_cells(2)


def with_cells(in_a_stage: int) -> Iterator[None]:
    from epochzero.spaces import nb201

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nb201, "CELLS", in_a_stage)
        yield
