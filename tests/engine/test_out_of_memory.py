"""A machine without room is not the network's fault: it stops with a sentence and leaves no score."""

from __future__ import annotations

import pytest

import epochzero as ez
from epochzero.errors import MachineError
from epochzero.plan.ops.conv import Conv

CELL = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"


def test_a_cpu_that_cannot_allocate_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Conv, "run", full)
    with pytest.raises(MachineError, match="Out of memory on one network"):
        ez.score(CELL, "naswot", space="nb201", batch_size=4)


def test_another_error_of_the_network_is_a_failed_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a strange kernel")

    monkeypatch.setattr(Conv, "run", broken)
    score = ez.score(CELL, "naswot", space="nb201", batch_size=4)["naswot"]
    assert score.status == "failed" and "a strange kernel" in score.why
