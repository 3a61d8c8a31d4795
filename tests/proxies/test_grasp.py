"""grasp against the whole Hessian, and against differences of gradients and of losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev

from epochzero.engine import Need, PlanNetwork, Proxy, parse, score_network
from epochzero.engine.loss import label_loss
from epochzero.engine.passes import Norm
from epochzero.engine.single import gradients
from epochzero.spaces.autoformer import Autoformer
from tests.proxies.nets import (
    CLASSES,
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    conv_net,
    cut_net,
    labels,
    linear_net,
    precisely,
    random_batch,
    score,
    value,
)

STEP = 1e-6


def moved(network: PlanNetwork, *directions: tuple[list[Tensor], float]) -> Twin:
    """The network's twin with its conv and linear weights displaced."""
    twin = Twin(network)
    with torch.no_grad():
        for direction, step in directions:
            for weight, d in zip(twin.layer_weights, direction, strict=True):
                weight.add_(step * d)
    return twin


def test_by_hand() -> None:
    # x = 2 and W = [[ln 3 / 2], [0]] give the logits (ln 3, 0) and p = (3/4, 1/4); with label 1, g = (3/4, -3/4) x.
    # H = x^2 (diag(p) - p p^T) = 4 * 3/16 * [[1, -1], [-1, 1]], so H g = 4 * 3/16 * (3/2, -3/2) * 2 = (9/4, -9/4).
    network = linear_net([[math.log(3) / 2], [0.0]])
    assert value(network, "grasp", batch_of(([[2.0]], [1]))) == pytest.approx(-math.log(3) / 2 * 9 / 4, rel=1e-5)
    # The other label: g = (-1/4, 1/4) x, so H g = (-3/4, 3/4).
    assert value(network, "grasp", batch_of(([[2.0]], [0]))) == pytest.approx(math.log(3) / 2 * 3 / 4, rel=1e-5)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_difference_of_gradients_along_the_gradient(make: Callable[[], PlanNetwork]) -> None:
    """H g = (g(W + h g) - g(W - h g)) / 2h."""
    network, batch = make(), random_batch()
    twin = Twin(network)
    along = twin.gradients(batch)
    ahead = moved(network, (along, STEP)).gradients(batch)
    behind = moved(network, (along, -STEP)).gradients(batch)
    triples = zip(twin.layer_weights, ahead, behind, strict=True)
    expected = -sum((w * (up - down)).sum().item() / (2 * STEP) for w, up, down in triples)
    assert_scores(network, "grasp", batch, expected, single=1e-3, double=1e-6)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_mixed_difference_of_the_loss(make: Callable[[], PlanNetwork]) -> None:
    """W^T H g from the loss alone, moved along W and along g."""
    network, batch = make(), random_batch()
    twin = Twin(network)
    gradients, weights = twin.gradients(batch), [w.detach().clone() for w in twin.layer_weights]
    step = 1e-4

    def loss(along_weights: float, along_gradient: float) -> float:
        return moved(network, (weights, along_weights), (gradients, along_gradient)).loss(batch).item()

    mixed = loss(step, step) - loss(step, -step) - loss(-step, step) + loss(-step, -step)
    assert_scores(network, "grasp", batch, -mixed / (4 * step**2), single=1e-3, double=1e-4)


def test_is_the_whole_hessian_times_the_gradient() -> None:
    network = linear_net(
        [[0.5, -1.0], [1.5, 0.25], [-0.75, 1.0]], [[1.0, -0.5, 0.75], [0.5, 1.0, -1.0], [-1.0, 0.25, 0.5]], relu=True
    )
    batch = random_batch((2,))
    twin = Twin(network)
    first, second = (name for name, _ in twin.named_parameters())
    flat = torch.cat([w.detach().flatten() for w in twin.layer_weights])  # [6 + 9]

    def loss(weights: Tensor) -> Tensor:
        state = {first: weights[:6].view(3, 2), second: weights[6:].view(3, 3)}
        logits = functional_call(twin, state, batch.part(0)[0].double())
        return torch.nn.functional.cross_entropy(logits, labels(batch))

    gradient = grad(loss)(flat)  # [15]
    hessian = jacrev(grad(loss))(flat)  # [15, 15]
    assert torch.allclose(hessian, hessian.mT)
    assert_scores(network, "grasp", batch, -(flat @ hessian @ gradient).item())


def test_a_cut_network_has_no_flow_of_gradients() -> None:
    found = score(cut_net(), "grasp", random_batch())
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")


# Samples that no layer mixes


def former() -> PlanNetwork:
    """A small transformer: attention, layer norms, no batch norm."""
    space = Autoformer("toy", (64,), (1, 2), (1, 2), (1.0,))
    return PlanNetwork(space.plan(space.sample(Random(0)), CLASSES, (3, 32, 32)))


def grasp_with(norm: Norm) -> Proxy:
    """In double precision, with batch norms that act like this."""
    asked = precisely("grasp")
    return replace(asked, needs_of=tuple(Need(replace(run, norm=norm), reads) for run, reads in asked.needs))


@pytest.mark.parametrize("room", [1, 2**40])
@pytest.mark.parametrize(("make", "norm"), [(conv_net, "eval"), (conv_net, "off"), (former, "train")])
def test_samples_apart_are_the_whole_batch(
    make: Callable[[], PlanNetwork], norm: Norm, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, asked = make(), grasp_with(norm)
    batch = random_batch(network.plan.input_shape, size=5)
    assert not network.mixes_samples(norm)

    monkeypatch.setattr(gradients, "GRAPH_BYTES", room)
    apart = value(network, asked, batch)
    monkeypatch.setattr(PlanNetwork, "mixes_samples", lambda self, norm: True)
    assert apart == pytest.approx(value(network, asked, batch), rel=1e-9)


@pytest.mark.parametrize("room", [1, 300, 500, 2**20])
def test_samples_run_together_while_they_fit(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, ran, took = torch.ones(4, 3, requires_grad=True), list[int](), list[int]()
    y = torch.zeros(8, dtype=torch.long)

    def forward(some: Tensor) -> Tensor:
        took.append(sum(kept.values()))
        kept.clear()
        ran.append(len(some))
        return some @ weight

    def losses(logits: Tensor, some: slice) -> Tensor:
        return label_loss(logits, y[some])

    monkeypatch.setattr(gradients, "GRAPH_BYTES", room)
    with gradients._counting() as kept:
        gradients.product_apart(forward, torch.ones(8, 4), losses, [weight], [weight])
    assert sum(ran) == 8
    if room == 1:
        assert ran == [1] * 8
    elif room == 2**20:
        assert ran == [1, 7]
    else:
        assert 1 < max(ran) < 7
        assert 0 < max(*took, sum(kept.values())) <= room


def test_counts_each_tensor_that_a_graph_keeps_once() -> None:
    x = torch.ones(10, requires_grad=True)  # 40 bytes
    with gradients._counting() as kept:
        y = x * x.view(2, 5).view(10)  # keeps x twice
        z = y.exp()  # keeps its output
    assert sum(kept.values()) == 80
    (slope,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    assert torch.equal(slope, 2 * x * z)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert torch.allclose(bend, (2 + 4 * x * x) * z)
    with gradients._counting() as kept:
        torch.ones(3, requires_grad=True) * torch.ones(1).expand(3) * torch.ones(100)[:3]
    assert sum(kept.values()) == 4 + 12


@pytest.mark.parametrize("others", [["fisher"], ["fisher", "snip", "jacov", "sigeo", "hnas", "dextr"]])
@pytest.mark.parametrize("make", [former, *CONNECTED])
def test_is_the_same_beside_others(make: Callable[[], PlanNetwork], others: list[str]) -> None:
    network = make()
    batch = random_batch(network.plan.input_shape, size=4, parts=4)
    names = [*others, "grasp"]
    together = score_network(network, [parse(name) for name in names], batch, 0).scores
    for name in names:
        assert together[name] == score(network, name, batch), name
