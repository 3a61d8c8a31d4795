"""grad_norm against autograd on ordinary layers, and against differences of the loss, one weight at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from epochzero.engine import PlanNetwork
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    conv_net,
    cut_net,
    linear_net,
    random_batch,
    score,
    value,
)

STEP = 1e-5


def looped(network: PlanNetwork, part: int = 0) -> float:
    gradients = Twin(network).gradients(random_batch(), part)
    return sum(math.sqrt(sum(g**2 for g in gradient.flatten().tolist())) for gradient in gradients)


def test_by_hand() -> None:
    # Logits (1*6 - 2*2, 0*6 + 1*2) = (2, 2), so p = (1/2, 1/2); the label is 1, so dL/dlogits = (1/2, -1/2) and
    # dL/dW = [[3, 1], [-3, -1]].
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    assert value(network, "grad_norm", batch_of(([[6.0, 2.0]], [1]))) == pytest.approx(math.sqrt(20), rel=1e-6)


def test_is_the_norm_of_the_mean_over_the_batch() -> None:
    # The same sample with either label: gradients [[3, 1], [-3, -1]] and its negative. Two of one and one of the other
    # leave a third of it; one of each leave nothing.
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    x = [[6.0, 2.0]] * 3
    assert value(network, "grad_norm", batch_of((x, [1, 0, 1]))) == pytest.approx(math.sqrt(20) / 3, rel=1e-6)
    found = score(network, "grad_norm", batch_of((x[:2], [1, 0])))
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")


def test_two_layers_add_their_norms() -> None:
    # h = 3, logits (3*2, 3*2), dL/dlogits = (1/2, -1/2): second layer [[3/2], [-3/2]]; first: dL/dh = 0.
    network = linear_net([[1.0]], [[2.0], [2.0]])
    assert value(network, "grad_norm", batch_of(([[3.0]], [1]))) == pytest.approx(math.sqrt(4.5), rel=1e-6)
    # Logits (0, 0) from weights (0, 0) and (4, -4) on h = 0: dL/dh = 4/2 + 4/2, times x = 3; second layer 0.
    network = linear_net([[0.0]], [[4.0], [-4.0]])
    assert value(network, "grad_norm", batch_of(([[3.0]], [1]))) == pytest.approx(12, rel=1e-6)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_autograd_on_ordinary_layers(make: Callable[[], PlanNetwork]) -> None:
    network = make()
    assert_scores(network, "grad_norm", random_batch(), looped(network))


def test_is_the_difference_of_the_loss_for_each_weight() -> None:
    network, batch = conv_net(), random_batch()
    twin = Twin(network)
    total = 0.0
    with torch.no_grad():
        for weight in twin.layer_weights:
            squares = 0.0
            for i in range(weight.numel()):
                entry = weight.view(-1)[i : i + 1]
                entry += STEP
                up = float(twin.loss(batch))
                entry -= 2 * STEP
                down = float(twin.loss(batch))
                entry += STEP
                squares += ((up - down) / (2 * STEP)) ** 2
            total += math.sqrt(squares)
    assert_scores(network, "grad_norm", batch, total, double=1e-6)


def test_a_cut_network_has_no_gradient() -> None:
    """Only the last bias feels the loss, and biases do not count."""
    found = score(cut_net(), "grad_norm", random_batch())
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")
