"""Predicted peak memory against torch's own record of its allocations."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor, nn

from epochzero import data
from epochzero.data import Batch
from epochzero.engine import PlanNetwork
from epochzero.engine.memory import peak_bytes
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.space_networks import batch_for
from epochzero.plan import Plan, chain
from epochzero.plan.memory import Live, footprint
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.wiring import Flatten
from epochzero.registry import spaces
from epochzero.spaces.base import Space
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


def slowly(plan: Plan, batch: Batch) -> int:
    """The whole plan run for its shapes, every tensor followed."""
    weights = {name: torch.empty(w.shape, device="meta") for name, w in plan.trunk.weights.items()}
    x = batch.part(0)[0][:1].to("meta")
    live = Live([x, *weights.values()])
    with torch.no_grad():
        PlanNetwork(plan).untouched(x, weights, live)
    return live.peak


@pytest.mark.parametrize("name", [name for name in spaces if isinstance(spaces[name], Space)])
def test_plans_of_every_space_as_a_whole_run_has_it(name: str) -> None:
    space = spaces[name]
    clicks = name.startswith("nasrec")  # whose ids noise does not have
    batch = batch_for(space, "white", size=1, parts=1, input_shape=(39,) if clicks else None)
    for arch in (space.sample(Random(1)), space.smallest()):
        plan = space.plan(arch, batch.num_classes, batch.input_shape)
        assert clicks or sum(footprint(plan)) == slowly(plan, batch)
        assert footprint(plan).weights == 4 * sum(param.numel for param in plan.weights.values())


def test_a_chain_by_hand() -> None:
    """Conv to 4 channels and ReLU of 8x8 pixels, then a classifier: the peak is two maps and the input."""
    plan = chain((3, 8, 8), conv=Conv(4, 3, padding=1), relu=ReLU(), flat=Flatten(), head=Linear(2))
    x, maps = 3 * 64, 4 * 64
    weights = 3 * 4 * 9 + maps * 2 + 2
    assert footprint(plan) == (4 * weights, 4 * (x + 2 * maps))
    facts = {"weight_bytes": weights, "activation_bytes": x + 2 * maps, "peak_memory": weights + x + 2 * maps}
    assert footprint(plan).facts(1) == facts


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
