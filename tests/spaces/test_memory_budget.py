"""Budgets of memory: what is drawn within them fits, in Python and on the command line."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.engine.space_networks import batch_for, budgeted
from epochzero.errors import UserError
from epochzero.plan.memory import footprint
from epochzero.registry import spaces
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from tests.command import epochzero, refusal

SMALL = (3, 8, 8)


@pytest.mark.parametrize(
    ("limit", "width"), [("max_weight_bytes", 4), ("max_activation_bytes", 1), ("max_peak_memory", 2)]
)
@pytest.mark.parametrize("name", ["nb201", "nats_sss", "nb101", "darts_search", "mlp"])
def test_what_is_drawn_within_a_limit_fits(name: str, limit: str, width: int) -> None:
    space = spaces[name]
    batch = batch_for(space, "white", size=1, parts=1, input_shape=(784,) if name == "mlp" else SMALL)
    key = limit.removeprefix("max_")

    def memory(arch: Any) -> int:
        return footprint(space.plan(arch, batch.num_classes, batch.input_shape)).facts(width)[key]

    rng = Random(0)
    half = sorted(memory(space.sample(rng)) for _ in range(9))[4]
    fitting = budgeted(space, Budget(**{limit: half, "byte_width": width}), batch)
    for _ in range(10):
        arch = fitting.sample(rng)
        assert memory(arch) <= half and memory(fitting.mutate(arch, rng)) <= half


def test_hardly_any_network_fits() -> None:
    """The walk starts at the smallest, or at a trial sample that fits."""
    space, batch = spaces["nats_sss"], batch_for(spaces["nats_sss"], "white", size=1, parts=1)
    least = footprint(space.plan(space.smallest(), batch.num_classes, batch.input_shape))
    tight = budgeted(space, Budget(max_peak_memory=sum(least) + 2000), batch)
    arch = tight.sample(Random(0))
    assert not tight.roomy and tight.fits(arch)
    with pytest.raises(UserError, match=r"at most 1,000 bytes of peak memory \(the smallest has [\d,]+ of peak memory"):
        budgeted(space, Budget(max_peak_memory=1000), batch).sample(Random(0))


def test_modules_are_followed_too() -> None:
    class Wide(nn.Sequential):
        def __init__(self, width: int) -> None:
            super().__init__(nn.Flatten(), nn.Linear(192, width), nn.ReLU(), nn.Linear(width, 10))

    space = ez.choices(Wide, width=[4, 8, 64])
    limit = 4 * (192 * 8 + 8 + 80 + 10) + 4 * (192 + 8 + 10)
    found = ez.search(space, "params", budget=3, data=torch.randn(4, *SMALL), max_peak_memory=limit)
    assert {step.text for step in found.history} == {"width=4", "width=8"}
    found = ez.search(space, "params", budget=3, data=torch.randn(4, *SMALL), max_weight_bytes="3k", byte_width=1)
    assert {step.text for step in found.history} == {"width=4", "width=8"}


def test_on_the_command_line(tmp_path: Any) -> None:
    asked: tuple[Any, ...] = ("search", "--space", "nats_sss", "--proxy", "params", "--budget", 3, "--batch-size", 2)
    limits = ("--max-weight-bytes", "30k", "--max-activation-bytes", "50k", "--byte-width", 1)
    found = epochzero(*asked, *limits, "--store", tmp_path / "r.db", "--json").json["best"]["memory"]
    assert found["weight_bytes"] <= 30_000 and found["activation_bytes"] <= 50_000 and found["byte_width"] == 1
    assert found["peak_memory"] == found["weight_bytes"] + found["activation_bytes"]
    with Store.open(tmp_path / "r.db") as store:
        (run,) = [run for run in store.runs() if run.kind == "search"]
    assert run.settings["max_weight_bytes"] == 30_000 and run.settings["byte_width"] == 1
    shown = epochzero(*asked)
    assert "memory  " in shown.out and " bytes for one sample: " in shown.out
    assert "--byte-width takes 1, 2, 4 or 8 bytes, not 3" in refusal(*asked, "--byte-width", 3)
    assert "--max-peak-memory takes a number" in refusal(*asked, "--max-peak-memory", "much")
    none = epochzero(*asked, "--max-peak-memory", "1k")
    assert none.code == 2 and "at most 1,000 bytes of peak memory (the smallest has" in none.err
