"""fisher against loops over samples and channels, with the gradients of ordinary layers' outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    chain,
    cut_net,
    drawn,
    layerless_net,
    linear_net,
    random_batch,
    score,
    value,
)


def looped(network: PlanNetwork, batch: Batch) -> float:
    """Output channels are axis 1 of a convolution's map, and the last axis of what a linear layer gives."""
    twin = Twin(network)
    loss = twin.loss(batch)
    layers = [(layer, out) for layer, _, out in twin.outputs if isinstance(layer, nn.Conv2d | nn.Linear)]
    gradients = torch.autograd.grad(loss, [out for _, out in layers], allow_unused=True)
    total = 0.0
    for (layer, out), gradient in zip(layers, gradients, strict=True):
        if gradient is None:
            continue
        axis = 1 if isinstance(layer, nn.Conv2d) else -1
        channels = out.shape[axis]
        for k in range(channels):
            activation, felt = out.select(axis, k), gradient.select(axis, k)
            squares = [(activation[n] * felt[n]).sum().item() ** 2 for n in range(batch.size)]
            weights_of_the_channel = layer.weight.numel() / channels
            total += 0.5 * sum(squares) / batch.size * weights_of_the_channel
    return total


def test_by_hand() -> None:
    # Logits a = (2, 2), label 1, dL/da = (1/2, -1/2): d = (1, -1), F = (1/2, 1/2), two weights for each channel.
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    assert value(network, "fisher", batch_of(([[6.0, 2.0]], [1]))) == pytest.approx(2, rel=1e-6)


def test_the_mean_loss_divides_each_samples_share() -> None:
    # Three such samples: dL/da = (1/6, -1/6) up to sign, d = (1/3, -1/3), F = 1/2 * 1/9 = 1/18 each, times 2.
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    found = value(network, "fisher", batch_of(([[6.0, 2.0]] * 3, [1, 0, 1])))
    assert found == pytest.approx(2 / 9, rel=1e-6)


def test_every_layer_adds_with_its_own_fan_in() -> None:
    # h = 2*1 + 1*1 = 3; logits (6, 6), label 0: dL/dlogits = (-1/2, 1/2), d = (-3, 3), F = 9/2 each, fan-in 1: 9.
    # dL/dh = -1 + 1 = 0: the first layer adds nothing.
    network = linear_net([[2.0, 1.0]], [[2.0], [2.0]])
    assert value(network, "fisher", batch_of(([[1.0, 1.0]], [0]))) == pytest.approx(9, rel=1e-6)
    # Second layer (1, -1) on h = ln 3 / 2: logits differ by ln 3, p = (3/4, 1/4), label 1: dL/dlogits = (3/4, -3/4).
    # Second layer: d = 3/4 h for both, F = 9/32 h^2 each, fan-in 1: 9/16 h^2. First: dL/dh = 3/2, d = 3/2 h,
    # F = 9/8 h^2, fan-in 2: 9/4 h^2.
    h = 0.5493061443340549
    network = linear_net([[h, 0.0]], [[1.0], [-1.0]])
    found = value(network, "fisher", batch_of(([[1.0, 1.0]], [1])))
    assert found == pytest.approx((9 / 16 + 9 / 4) * h**2, rel=1e-6)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_loop_over_samples_and_channels(make: Callable[[], PlanNetwork]) -> None:
    """A layer that runs twice counts each time; one that leads nowhere adds nothing."""
    network, batch = make(), random_batch()
    assert_scores(network, "fisher", batch, looped(network, batch))


def test_the_channels_of_a_linear_layer_are_its_last_axis() -> None:
    """A linear layer inside an image network mixes the rows of its maps."""
    shape = (2, 4, 5)
    network = drawn(chain(shape, Linear(6), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = random_batch(shape)
    assert_scores(network, "fisher", batch, looped(network, batch))


def test_a_cut_network_has_no_score() -> None:
    """The last layer's output is its bias, which the loss feels; but no weight of a layer is felt."""
    network, batch = cut_net(), random_batch()
    assert looped(network, batch) > 0
    assert not any(gradient.any() for gradient in Twin(network).gradients(batch))
    found = score(network, "fisher", batch)
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")


def test_a_network_without_layers() -> None:
    found = score(layerless_net(), "fisher", random_batch((3, 6, 6)))
    assert found.status == "degenerate"
    assert "conv or linear layer" in found.why
