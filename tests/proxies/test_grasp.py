"""grasp against the whole Hessian, and against differences of gradients and of losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev

from epochzero.engine import PlanNetwork
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    cut_net,
    labels,
    linear_net,
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
