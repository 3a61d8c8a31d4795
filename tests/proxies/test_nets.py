"""The oracles' own footing: a twin computes what a network written down by hand computes, and so does the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from epochzero.engine import Pass, PlanNetwork, Proxy, need
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import CONNECTED, IMAGE, Mean, Twin, chain, cut_net, drawn, random_batch, shared_net, value

SUM = Proxy("sum", lambda trace: trace.logits.square().sum(), [need(Pass(dtype="float64"), "logits")], True, {})
LOSS = Proxy("loss", lambda trace: trace.loss, [need(Pass(dtype="float64"), "loss")], True, {})


def test_a_twin_is_the_network_written_by_hand() -> None:
    plan = chain(IMAGE, Conv(4, 3, 2, padding=1, bias=True), BatchNorm(), ReLU(), GlobalAvgPool(), Linear(3))
    network = drawn(plan)
    conv, norm, head = nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Linear(4, 3)
    for name, layer in (("conv0", conv), ("batchnorm1", norm), ("linear4", head)):
        layer.load_state_dict({part: network.weights[f"{name}.{part}"] for part in ("weight", "bias")}, strict=False)
    by_hand = nn.Sequential(conv, norm, nn.ReLU(), Mean(), head).double()
    x = random_batch().part(0)[0].double()
    assert torch.equal(Twin(network)(x), by_hand(x))
    assert torch.allclose(Twin(network, "written")(x), by_hand(x), rtol=1e-12)
    norm.eval()
    norm.running_mean = network.weights["batchnorm1.running_mean"].double()
    norm.running_var = network.weights["batchnorm1.running_var"].double()
    assert torch.equal(Twin(network, "eval")(x), by_hand(x))
    by_hand[1] = nn.Identity()
    assert torch.equal(Twin(network, "off")(x), by_hand(x))


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_the_engine_computes_what_the_twin_computes(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    twin = Twin(network)
    logits = twin(batch.part(0)[0].double())
    assert value(network, SUM, batch) == pytest.approx(logits.square().sum().item(), rel=1e-12)
    assert value(network, LOSS, batch) == pytest.approx(twin.loss(batch).item(), rel=1e-12)


def test_a_shared_layer_is_one_layer_that_runs_twice() -> None:
    network = shared_net()
    twin = Twin(network)
    twin(random_batch().part(0)[0].double())
    convs = [layer for layer, _, _ in twin.outputs if isinstance(layer, nn.Conv2d)]
    assert len(convs) == 3
    assert convs[1] is convs[2]
    assert len(twin.layer_weights) == len(network.layer_weights) == 3
