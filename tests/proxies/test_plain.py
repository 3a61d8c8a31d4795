"""plain against autograd, and against what the loss does when all weights grow together."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from epochzero.engine import PlanNetwork, parse
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    assert_scores,
    batch_of,
    chain,
    cut_net,
    drawn,
    linear_net,
    random_batch,
    score,
    value,
)

STEP = 1e-6


def test_by_hand() -> None:
    # Logits (ln 3, 0), p = (3/4, 1/4), label 1: dL/dW = [[3/4], [-3/4]] * x with x = 2, and W = [[ln 3 / 2], [0]].
    network = linear_net([[math.log(3) / 2], [0.0]])
    expected = math.log(3) / 2 * 0.75 * 2
    assert value(network, "plain", batch_of(([[2.0]], [1]))) == pytest.approx(expected, rel=1e-6)


def test_keeps_the_sign() -> None:
    # The other label: dL/dW = [[-1/4], [1/4]] * 2.
    network = linear_net([[math.log(3) / 2], [0.0]])
    assert value(network, "plain", batch_of(([[2.0]], [0]))) == pytest.approx(-math.log(3) / 4, rel=1e-6)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_autograd_on_ordinary_layers(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    twin = Twin(network)
    total = 0.0
    for weight, gradient in zip(twin.layer_weights, twin.gradients(batch), strict=True):
        for w, g in zip(weight.flatten().tolist(), gradient.flatten().tolist(), strict=True):
            total += w * g
    assert_scores(network, "plain", batch, total)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_slope_of_the_loss_as_all_weights_grow(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()

    def loss(scale: float) -> float:
        twin = Twin(network)
        with torch.no_grad():
            for weight in twin.layer_weights:
                weight.mul_(scale)
            return float(twin.loss(batch))

    slope = (loss(1 + STEP) - loss(1 - STEP)) / (2 * STEP)
    assert_scores(network, "plain", batch, slope, double=1e-6)


def test_a_layer_before_a_norm_adds_nothing() -> None:
    network, batch = drawn(chain(IMAGE, Conv(4, 3), BatchNorm(), ReLU(), GlobalAvgPool(), Linear(3))), random_batch()
    twin = Twin(network)
    head = (twin.layer_weights[1] * twin.gradients(batch)[1]).sum().item()
    assert value(network, "plain", batch) == pytest.approx(head, rel=1e-3)


def test_a_cut_network_has_no_slope() -> None:
    found = score(cut_net(), "plain", random_batch())
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")


def test_lower_is_better() -> None:
    assert not parse("plain").higher_is_better
