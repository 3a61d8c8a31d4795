"""Predicted peak memory against torch's own record of its allocations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epochzero import data
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.hardware.memory import peak_bytes
from tests.engine.modules import zoo
from tests.engine.modules.module_nets import seeded
from tests.test_bench_scripts import script

KINDS = sorted(zoo.KINDS)
benchmark = script("peak_memory")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_module_within_a_tenth(kind: str) -> None:
    module = seeded(lambda: zoo.KINDS[kind](16, 2))
    shape = (2, 3, zoo.SIDE, zoo.SIDE)
    x = torch.randint(zoo.WORDS, (2, zoo.TIME)) if kind == "causal LM" else torch.randn(shape)
    peak = peak_bytes(ModuleNetwork(module, batch := data.from_tensors(x)), batch)
    measured = benchmark.measured(module, x[:1])
    assert measured.with_workspaces >= measured.tensors
    assert peak == pytest.approx(measured.tensors, rel=0.1)


@pytest.mark.parametrize("case", list(benchmark.of_spaces(("nb201", "nats_sss"))), ids=lambda case: case.name)
def test_plans_within_a_tenth(case: object) -> None:
    assert isinstance(case, benchmark.Case)
    assert peak_bytes(case.network, case.batch) == pytest.approx(benchmark.measured(case.module, case.x)[0], rel=0.01)


def test_in_place_layers_and_shared_weights_take_no_memory_of_their_own() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu_(self.two(torch.relu_(self.one(x.flatten(1)))))

    batch = data.from_tensors(torch.randn(2, 1, 8, 8))
    assert peak_bytes(ModuleNetwork(Tied(), batch), batch) == 4 * (64 * 64 + 64 + 2 * 64)
