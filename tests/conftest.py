"""One thread for each of pytest's processes: small networks gain nothing from more, and rounding stays the same."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest

from tests.fresh import Fresh

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so the search for garbage need not go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    with Fresh(tmp_path_factory.mktemp("fresh")) as started:
        yield started


@pytest.fixture(scope="module")
def shallow_nb201() -> Iterator[None]:
    """Networks of nb201 with one cell in each stage, not five, for tests that are as good with fewer layers."""
    from epochzero.spaces import nb201

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nb201, "CELLS", 1)
        yield
