"""depth, layers, width, activations and size against counts by hand and paths listed one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import pytest
import torch
from torch import Tensor, nn

from epochzero.api import as_network
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity
from epochzero.registry import spaces
from tests.engine.modules.any_nets import Recurrent, ViT
from tests.proxies.nets import (
    CONNECTED,
    chain,
    conv_net,
    cut_net,
    dead_path_net,
    drawn,
    random_batch,
    score,
    shared_net,
    value,
)

BASELINES = ["depth", "depth(path=shortest)", "layers", "layers(kind=conv)", "width", "activations", "size"]


def paths(plan: Plan, at: int) -> Iterator[int]:
    """The number of convolutions and linear layers on each path to a node; zeros have none."""
    op, inputs = plan.nodes[at].op, plan.nodes[at].inputs
    if op.kind == "zero":
        return
    if not inputs:
        yield 0
    for source in inputs:
        yield from (length + (op.kind in ("conv", "linear")) for length in paths(plan, source))


@pytest.mark.parametrize("make", CONNECTED)
def test_depth_is_the_longest_path(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    lengths = list(paths(network.plan, len(network.plan.nodes) - 1))
    assert value(network, "depth", batch) == max(lengths)
    assert value(network, "depth(path=shortest)", batch) == min(lengths)


def test_by_hand() -> None:
    # A stem; a grouped convolution beside a pool and a skip; a strided convolution to 3x3; a head.
    network, batch = conv_net(), random_batch()
    assert value(network, "depth", batch) == 4
    assert value(network, "depth(path=shortest)", batch) == 3
    assert value(network, "layers", batch) == 4
    counts = {"conv": 3, "linear": 1, "norm": 2, "activation": 3, "pool": 2, "identity": 1, "attention": 0, "zero": 0}
    for kind, count in counts.items():
        assert value(network, f"layers(kind={kind})", batch) == count, kind
    assert value(network, "width", batch) == pytest.approx((2 * math.log(4) + 2 * math.log(3)) / 4)
    assert value(network, "activations", batch) == 4 * 36 + 4 * 36 + 3 * 9 + 3
    assert value(network, "size", batch) == pytest.approx(math.log(network.flops) + math.log(network.params))


def test_a_shared_layer_counts_each_time() -> None:
    assert value(shared_net(), "depth", random_batch()) == value(shared_net(), "layers", random_batch()) == 4


def test_dead_ends_count_as_layers_alone() -> None:
    network, batch = dead_path_net(), random_batch()
    assert (value(network, "layers", batch), value(network, "depth", batch)) == (4, 3)


def test_networks_without_a_value() -> None:
    batch = random_batch()
    assert score(cut_net(), "depth", batch).why == "no path leads from the input to the output"
    empty = drawn(chain((2, 6, 6), ReLU(), Identity(), GlobalAvgPool()))
    assert "no conv or linear layer" in score(empty, "width", batch).why
    assert "no parameters" in score(empty, "size", batch).why
    assert value(empty, "depth", batch) == value(empty, "layers", batch) == value(empty, "activations", batch) == 0


@pytest.mark.parametrize("name", ["nb201", "nb101_stem16", "darts", "mnasnet", "mlp"])
def test_a_module_has_the_structure_of_its_plan(name: str) -> None:
    """Printed code, run as a stranger's module."""
    space = spaces[name]
    shape = (12,) if name == "mlp" else (3, 32, 32)
    plan = space.plan(space.sample(Random(2)), 10, shape)
    code: dict[str, object] = {}
    exec(compile(plan.code(), "printed", "exec"), code)
    batch = random_batch(shape, size=2)
    module = as_network(code["Network"](), batch)  # type: ignore[operator]
    for baseline in BASELINES:
        assert value(module, baseline, batch) == pytest.approx(value(PlanNetwork(plan), baseline, batch)), baseline


def test_structure_of_modules() -> None:
    """In-place steps, products with weights, attention and recurrence."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 5)
            self.factor = nn.Parameter(torch.ones(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y += self.second(y.relu_())
            z = torch.zeros_like(y)
            z[:, 1:] = y[:, 1:]
            return z @ self.factor

    batch = random_batch((6,))
    module = as_network(Net(), batch)
    assert (value(module, "depth", batch), value(module, "depth(path=shortest)", batch)) == (3, 2)
    assert value(module, "activations", batch) == 5 + 5 + 3
    images = random_batch((3, 16, 16))
    transformer = as_network(ViT(), images)
    assert value(transformer, "depth(path=shortest)", images) < value(transformer, "depth", images)
    assert isinstance(Recurrent(), nn.Module)


@pytest.mark.parametrize("proxy", ["depth(path=mean)", "layers(kind=relu)"])
def test_impossible_settings_are_refused(proxy: str) -> None:
    with pytest.raises(UserError, match="takes"):
        _ = parse(proxy).needs


def test_they_run_nothing() -> None:
    """So that they are counted for each network, beside scores that others share."""
    assert all(parse(baseline).free for baseline in BASELINES)
    assert not parse("naswot").free


def test_linear_layers_on_tokens_count_their_width() -> None:
    batch = random_batch((4, 3))
    module = as_network(nn.Sequential(nn.Linear(3, 6), nn.Flatten(), nn.Linear(24, 3)), batch)
    assert value(module, "width", batch) == pytest.approx((math.log(6) + math.log(3)) / 2)
    assert value(module, "activations", batch) == 24 + 3
    assert value(drawn(chain((3, 4, 4), Conv(2, 3), GlobalAvgPool(), Linear(3))), "width", random_batch((3, 4, 4))) == (
        pytest.approx((math.log(2) + math.log(3)) / 2)
    )
