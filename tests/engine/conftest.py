"""Routines run on a CPU with plain operations in place of a GPU's kernels."""

from __future__ import annotations

import pytest

from epochzero.engine.gpu import arena
from tests.engine.gpu.plain_kernels import PLAIN


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "kernels", lambda: PLAIN)
