"""One thread for each of pytest's processes: small networks gain nothing from more, and rounding stays the same."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: the search for garbage, which would go through them again and again, need not."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def shallow_nb201() -> Iterator[None]:
    """Networks of nb201 with two cells in each stage, not five, for tests that are as good with fewer layers."""
    from epochzero.spaces import nb201

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nb201, "CELLS", 2)
        yield
