"""Scoring runs in single precision whatever torch is told, unless TF32 was asked for; and torch's flags stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero import data
from epochzero.engine import Pass, PlanNetwork, Proxy, Trace, need, precision, score_population
from epochzero.engine.precision import asked_precision, set_precision
from epochzero.registry import spaces
from epochzero.supernet import nasi
from epochzero.supernet.base import make

BACKENDS: Any = torch.backends
BATCH = data.pink((3, 8, 8), size=2)
SINGLE, TF32 = [(False, False)], [(True, True)]


def flags() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture(autouse=True)
def as_loaded() -> Iterator[None]:
    """Convolutions may be rounded, as torch has it when it is loaded; and nothing was asked for."""

    def reset() -> None:
        BACKENDS.fp32_precision = BACKENDS.cudnn.fp32_precision = "none"
        precision._restore(precision._Flags(("none", "tf32", "tf32", "none", "none"), "highest", True))
        precision.allow_tf32(False)

    reset()
    yield
    reset()


class Watched(nn.Module):
    """Notes the flags whenever it runs."""

    def __init__(self, seen: list[tuple[bool, bool]]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))
        self.seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(flags())
        return self.body(x)  # type: ignore[no-any-return]


def test_a_network_of_ones_own_runs_in_single_precision() -> None:
    seen: list[tuple[bool, bool]] = []
    ez.score(Watched(seen), "grad_norm", data=BATCH)
    assert seen and set(seen) == set(SINGLE) and flags() == (True, False)


def watching(seen: list[tuple[bool, bool]]) -> Proxy:
    def compute(trace: Trace) -> float:
        seen.append(flags())
        return float(trace.logits.sum())

    return Proxy("watching", compute, (need(Pass(), "logits"),), True, {})


def populations() -> list[PlanNetwork]:
    return [PlanNetwork(spaces["nb201"].plan(cell, 10, (3, 8, 8))) for cell in list(spaces["nb201"])[:2]]


@pytest.mark.parametrize("lockstep", ["always", "never"])
def test_proxies_of_a_population_compute_in_the_precision_asked_for(lockstep: Any) -> None:
    for tf32, expected in ((False, SINGLE), (True, TF32)):
        precision.allow_tf32(tf32)
        seen: list[tuple[bool, bool]] = []
        score_population(populations(), [watching(seen)], BATCH, 0, lockstep)
        assert seen == 2 * expected and flags() == (True, False)


def test_flags_come_back_from_a_failure() -> None:
    def compute(trace: Trace) -> float:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        score_population(populations(), [Proxy("bug", compute, (need(Pass(), "params"),), True, {})], BATCH, 0)
    assert flags() == (True, False)


def told() -> list[object]:
    """All that torch says of its precision; the older names refuse where the newer were used."""
    reads: list[Callable[[], object]] = [
        lambda: flags()[0],
        lambda: flags()[1],
        torch.get_float32_matmul_precision,
        *(lambda place=place: place.fp32_precision for place in (*precision.ON_GPU, *precision.ON_CPU, BACKENDS)),
    ]
    found: list[object] = []
    for read in reads:
        try:
            found.append(read())
        except RuntimeError:
            found.append("refused")
    return found


def newer(place: Any, value: str) -> None:
    place.fp32_precision = value


WAYS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "older": lambda: set_precision(True),
    "word": lambda: torch.set_float32_matmul_precision("medium"),
    "newer": lambda: newer(BACKENDS.cuda.matmul, "tf32"),
    "for all": lambda: newer(BACKENDS, "tf32"),
    "mixed": lambda: newer(BACKENDS.cudnn.conv, "ieee"),
}


@pytest.mark.parametrize("way", WAYS)
def test_however_torch_was_told_its_flags_come_back(way: str) -> None:
    WAYS[way]()
    precision.allow_tf32(False)
    before = told()
    assert (way in ("newer", "for all", "mixed")) == ("refused" in before)
    with asked_precision():
        assert flags() == (False, False)
    assert told() == before


def test_threads_that_score_at_a_time_do_not_disturb_each_other() -> None:
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with asked_precision():
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    with asked_precision():
        thread.start()
        assert entered.wait(10)
    assert flags() == (False, False), "the other is still at work"
    left.set()
    thread.join(10)
    assert flags() == (True, False)


def test_a_search_inside_one_network_runs_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    real = nasi.slope

    def slope(*given: Any, **named: Any) -> Any:
        seen.append(flags())
        return real(*given, **named)

    monkeypatch.setattr(nasi, "slope", slope)
    make("nasi", spaces["nb201"], data.pink((3, 8, 8), size=2), options={"channels": 2, "cells": 1}).run(1)
    assert seen == SINGLE


def test_commands_set_it_for_all_that_follows() -> None:
    set_precision(True)
    assert flags() == (True, True) and precision.tf32_allowed()
    set_precision(False)
    assert flags() == (False, False) and not precision.tf32_allowed()
