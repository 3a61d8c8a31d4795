"""synflow against every path through a network, and against taking away one weight at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import nn

from epochzero.api import as_network
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan import Builder
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    chain,
    conv_net,
    cut_net,
    dead_path_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
    with_weights,
)


def positive(network: PlanNetwork, norm: str = "off") -> Twin:
    """Without norms, every weight and bias made positive."""
    twin = Twin(network, norm)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.abs_()
    return twin


def test_by_hand() -> None:
    # |W1| 1 = 1 + 2 = 3, R = (3 + 4) * 3 = 21; each layer conserves the flow: 21 + 21.
    network = linear_net([[1.0, -2.0]], [[-3.0], [4.0]])
    assert value(network, "synflow", random_batch((2,))) == pytest.approx(math.log(42), rel=1e-12)


def test_a_bias_carries_flow_but_is_not_counted() -> None:
    # h = |1| + |-2| + |-1| = 4, R = (3 + 4) * 4 + |b| = 28 + 5: the first layer adds 7 * 3, the second 7 * 4.
    network = with_weights(chain((2,), Linear(1), Linear(2)), linear0=[[1.0, -2.0]], linear1=[[-3.0], [4.0]])
    network.weights["linear0.bias"] = torch.tensor([-1.0])
    network.weights["linear1.bias"] = torch.tensor([2.0, -3.0])
    assert value(network, "synflow", random_batch((2,))) == pytest.approx(math.log(21 + 28), rel=1e-12)


def test_a_shared_weight_feels_both_uses() -> None:
    # R = |w| * |w| = 9 for w = -3, so w dR/dw = 2 w^2 = 18.
    net = Builder()
    x = net.input((1,))
    x = net.add(Linear(1, bias=False), x, name="first")
    net.add(Linear(1, bias=False), x, name="again", shares="first")
    network = with_weights(net.plan(), first=[[-3.0]])
    assert value(network, "synflow", random_batch((1,))) == pytest.approx(math.log(18), rel=1e-12)


def test_is_the_sum_over_all_paths() -> None:
    """A path through L layers counts once for each of its L weights."""
    layers = [[[0.5, -1.0], [1.5, 0.25], [-0.75, 1.0]], [[1.0, -0.5, 0.75], [0.5, 2.0, -1.0]], [[-1.0, 0.25]]]
    total = 0.0
    for i, j, k, m in product(range(2), range(3), range(2), range(1)):
        total += 3 * abs(layers[0][j][i] * layers[1][k][j] * layers[2][m][k])
    network = linear_net(*layers, relu=True)
    assert value(network, "synflow", random_batch((2,))) == pytest.approx(math.log(total), rel=1e-12)


@pytest.mark.parametrize("make", [conv_net, dead_path_net])
def test_is_the_flow_lost_with_each_weight(make: Callable[[], PlanNetwork]) -> None:
    """Where no weight comes twice, R is linear in each: w dR/dw = R - R without w."""
    network = make()
    twin, ones = positive(network), torch.ones(1, *IMAGE, dtype=torch.float64)
    total = 0.0
    with torch.no_grad():
        flow = twin(ones).sum().item()
        for weight in twin.layer_weights:
            for i in range(weight.numel()):
                entry = weight.view(-1)[i : i + 1]
                kept = entry.clone()
                entry.zero_()
                total += flow - twin(ones).sum().item()
                entry.copy_(kept)
    assert value(network, "synflow", random_batch()) == pytest.approx(math.log(total), rel=1e-10)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_autograd_on_ordinary_layers(make: Callable[[], PlanNetwork]) -> None:
    """Neither the data nor labels have a say."""
    network = make()
    twin = positive(network)
    twin(torch.ones(1, *IMAGE, dtype=torch.float64)).sum().backward()
    total = sum((w * w.grad).abs().sum().item() for w in twin.layer_weights if w.grad is not None)
    assert value(network, "synflow", random_batch()) == pytest.approx(math.log(total), rel=1e-12)
    assert value(network, "synflow", unlabelled(random_batch(seed=1))) == pytest.approx(math.log(total), rel=1e-12)


def test_batch_norms_may_stay() -> None:
    network = conv_net()
    twin = positive(network, "train")
    twin(torch.ones(1, *IMAGE, dtype=torch.float64)).sum().backward()
    total = sum((w * w.grad).abs().sum().item() for w in twin.layer_weights if w.grad is not None)
    assert value(network, "synflow(norm=train)", random_batch()) == pytest.approx(math.log(total), rel=1e-9)
    assert value(network, "synflow(norm=train)", random_batch()) != value(network, "synflow", random_batch())


def test_a_negative_sum_after_layer_norms() -> None:
    """The norm takes the mean away: whether positive weights sum the rest to more or to less than 0 is chance."""
    signs, batch = set(), random_batch((4,))
    for seed in range(12):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False))
        found = value(as_network(module, batch), "synflow", batch)
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.abs_()
        flow = module(torch.ones(1, 4, dtype=torch.float64)).sum()
        weights = [module.get_parameter("0.weight"), module.get_parameter("2.weight")]
        gradients = torch.autograd.grad(flow, weights)
        total = sum((w * g).abs().sum().item() for w, g in zip(weights, gradients, strict=True))
        assert found == pytest.approx(math.log(total), rel=1e-9)
        signs.add(flow.item() > 0)
    assert signs == {True, False}


def test_another_norm_is_refused() -> None:
    with pytest.raises(UserError, match="norm=off or norm=train"):
        _ = parse("synflow(norm=on)").needs


def test_a_deep_network_whose_flow_no_single_float_holds() -> None:
    # 60 layers of one weight 10: R = 1e60, the score log(60 * 1e60).
    network = linear_net(*[[[10.0]]] * 60)
    expected = math.log(60) + 60 * math.log(10)
    assert value(network, "synflow", random_batch((1,))) == pytest.approx(expected, rel=1e-12)


def test_more_flow_than_doubles_hold() -> None:
    found = score(linear_net(*[[[1e30]]] * 12), "synflow", random_batch((1,)))
    assert found.status == "degenerate"
    assert "double precision" in found.why


@pytest.mark.parametrize("network", [cut_net(), linear_net([[0.0, 0.0]], [[1.0]])])
def test_a_network_without_flow(network: PlanNetwork) -> None:
    found = score(network, "synflow", random_batch(network.plan.input_shape))
    assert found.status == "degenerate"
    assert "no signal flows" in found.why


def test_skips_and_pools_carry_the_flow() -> None:
    # Two channels of ones, mean 1, into |W| of a head: R = sum of |W| + |b|, counted without |b|.
    network = drawn(chain(IMAGE, Identity(), GlobalAvgPool(), Linear(3)))
    expected = math.log(network.weights["linear2.weight"].double().abs().sum())
    assert value(network, "synflow", random_batch()) == pytest.approx(expected, rel=1e-12)
