"""The three scores of AZ-NAS against numpy, on the outputs of blocks that are run one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from epochzero.engine import PlanNetwork
from epochzero.plan import Builder, generator
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Identity, Zero
from epochzero.proxies.az_nas import entropy, transfer
from epochzero.types import Origin, Shape
from tests.proxies.nets import (
    IMAGE,
    Twin,
    assert_scores,
    conv_net,
    dead_path_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)

SIZE = 8
PROXIES = ["az_expressivity", "az_progressivity", "az_trainability"]
Block = Callable[[Tensor], Tensor]


def blocks_net(second: Op = Identity()) -> PlanNetwork:
    """A stem; a residual cell; one that halves the resolution; two that share a convolution, one partly dead."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(4, 3, padding=1), x, name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    y = net.add(ReLU(), x, name="one.relu")
    y = net.add(Conv(4, 3, padding=1), y, name="one.conv")
    y = net.add(BatchNorm(), y, name="one.norm")
    y = net.add(second, y, name="one.end")
    x = net.add(Add(), x, y, name="one.sum")
    x = net.add(ReLU(), x, name="down.relu")
    x = net.add(Conv(6, 3, 2, padding=1, bias=True), x, name="down.conv")
    x = net.add(BatchNorm(affine=False), x, name="down.norm")
    x = net.add(Conv(6, 3, padding=1), x, name="two.conv")
    x = net.add(ReLU(), x, name="two.relu")
    y = net.add(Conv(6, 3, padding=1), x, name="three.conv", shares="two.conv")
    dead = net.add(Zero(), x, name="three.zero")
    x = net.add(Add(), y, dead, name="three.sum")
    x = net.add(ReLU(), x, name="head.relu")
    x = net.add(GlobalAvgPool(), x, name="head.pool")
    net.add(Linear(3), x, name="head.linear")
    return drawn(net.plan())


def blocks_of(network: PlanNetwork, seed: int) -> list[Block]:
    """The blocks of `blocks_net`, written out, with Kaiming's weights."""
    part = Twin(PlanNetwork(network.plan, Origin("kaiming", seed))).parts
    return [
        lambda x: part["stem/norm"](part["stem/conv"](x)),
        lambda x: x + part["one/end"](part["one/norm"](part["one/conv"](x.relu()))),
        lambda x: part["down/norm"](part["down/conv"](x.relu())),
        lambda x: part["two/conv"](x).relu(),
        part["two/conv"],
    ]


def noise(seed: int, shape: Shape = IMAGE) -> Tensor:
    return torch.randn(SIZE, *shape, generator=generator(seed, "noise", 0)).double()


def features(network: PlanNetwork, seed: int) -> list[Tensor]:
    found = [noise(seed)]
    with torch.no_grad():
        for block in blocks_of(network, seed):
            found.append(block(found[-1]))
    return found[1:]


def spread(feature: Tensor) -> float:
    """The entropy of the eigenvalues of the channels' covariance, as shares of their sum."""
    channels = feature.numpy().transpose(1, 0, 2, 3).reshape(feature.shape[1], -1)  # [C, B*H*W]
    eigenvalues = np.linalg.eigvalsh(np.cov(channels, bias=True))
    shares = eigenvalues / eigenvalues.sum()
    return float(-sum(p * math.log(p + 1e-8) for p in shares))


def passed(before: Tensor, after: Tensor, block: Block, signs: Tensor) -> float:
    """2 - s - 1/s for s the largest singular value of what the block makes of random signs, place by place."""
    leaf = before.clone().requires_grad_()
    arrived = torch.autograd.grad(block(leaf), leaf, signs)[0].numpy()
    times = before.shape[-1] // after.shape[-1]
    samples, _, height, width = after.shape
    total = np.zeros((before.shape[1] * times**2, after.shape[1]))
    for n in range(samples):
        for i in range(height):
            for j in range(width):
                here = arrived[n, :, i * times : (i + 1) * times, j * times : (j + 1) * times]
                total += np.outer(here.flatten(), signs[n, :, i, j].numpy())
    s = np.linalg.svd(total / (samples * height * width))[1].max()
    return float(2 - s - 1 / (s + 1e-6))


@pytest.mark.parametrize("second", [Identity(), Zero()])
@pytest.mark.parametrize("seed", [0, 6])
def test_expressivity_and_progressivity_are_entropies(seed: int, second: Op) -> None:
    network, batch = blocks_net(second), unlabelled(random_batch(size=SIZE))
    e = [spread(feature) for feature in features(network, seed)]
    assert len(e) == 5
    assert_scores(network, "az_expressivity", batch, sum(e), seed=seed)
    growth = min(later - earlier for earlier, later in pairwise(e))
    assert value(network, "az_progressivity", batch, seed) == pytest.approx(growth, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 6])
def test_trainability_is_what_arrives_of_random_signs(seed: int) -> None:
    network, batch = blocks_net(), unlabelled(random_batch(size=SIZE))
    maps, blocks = features(network, seed), blocks_of(network, seed)[1:]
    scores = []
    for i, (before, after, block) in enumerate(zip(maps[:-1], maps[1:], blocks, strict=True)):
        drawn = torch.randint(2, after.shape, generator=generator(seed, "az", i))
        scores.append(passed(before, after, block, 2.0 * drawn - 1.0))
    assert len(scores) == 4
    assert_scores(network, "az_trainability", batch, sum(scores) / 4, seed=seed)


def test_a_block_that_is_a_skip_is_left_out_of_trainability() -> None:
    """The first cell's branch is cut, so that it passes gradients on as they are."""
    network, batch = blocks_net(Zero()), random_batch(size=SIZE)
    maps, blocks = features(network, 0), blocks_of(network, 0)[1:]
    scores = []
    for i in (1, 2, 3):
        signs = 2.0 * torch.randint(2, maps[i + 1].shape, generator=generator(0, "az", i)) - 1.0
        scores.append(passed(maps[i], maps[i + 1], blocks[i], signs))
    assert_scores(network, "az_trainability", batch, sum(scores) / 3)


def in_blocks(shape: Shape, *ops: Op) -> PlanNetwork:
    """Each op a block of its own, then a head."""
    net = Builder()
    x = net.input(shape)
    for i, op in enumerate(ops):
        x = net.add(op, x, name=f"block{i}.op")
    x = net.add(GlobalAvgPool(), x, name="head.pool")
    net.add(Linear(3), x, name="head.linear")
    return drawn(net.plan())


def test_by_hand() -> None:
    # Two channels of variance 3 and 1 that do not correlate: shares 3/4 and 1/4.
    root = math.sqrt(3)
    feature = torch.tensor([[[[root, -root, root, -root]], [[1.0, 1.0, -1.0, -1.0]]]])
    expected = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert entropy(feature).item() == pytest.approx(expected, rel=1e-6)  # type: ignore[union-attr]
    assert entropy(feature.flatten(2).transpose(1, 2)).item() == pytest.approx(expected, rel=1e-6)  # type: ignore[union-attr]
    assert entropy(torch.ones(2, 3)) is None
    # Signs that come back doubled: A = 2. Folded from 2x2 places into channels: every place of the four is one row.
    signs = torch.tensor([[[[1.0, -1.0]]]])
    assert transfer(2 * signs, signs).tolist() == [[2.0]]
    arrived = torch.tensor([[[[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]]])
    assert transfer(arrived, signs).tolist() == [[(1 - 5) / 2], [(2 - 6) / 2], [(3 - 7) / 2], [(4 - 8) / 2]]


def test_one_number_by_hand() -> None:
    """A 1x1 convolution of one channel multiplies by its weight w: A = w, and the entropy of one channel is 0."""
    network, batch = in_blocks((1, 4, 4), Identity(), Conv(1, 1)), random_batch((1, 4, 4))
    w = abs(PlanNetwork(network.plan, Origin("kaiming", 0)).weights["block1.op.weight"].item())
    assert value(network, "az_trainability", batch) == pytest.approx(2 - w - 1 / (w + 1e-6), rel=1e-5)
    assert value(network, "az_expressivity", batch) == pytest.approx(0, abs=1e-6)


def test_skips_change_nothing() -> None:
    network, batch = in_blocks(IMAGE, Identity(), Identity()), random_batch()
    assert value(network, "az_expressivity", batch) == pytest.approx(2 * spread(noise(0)), rel=1e-6)
    assert value(network, "az_progressivity", batch) == 0
    found = score(network, "az_trainability", batch)
    assert found.status == "degenerate"
    assert "untouched" in found.why


def test_neither_the_weights_nor_the_data_matter() -> None:
    network, other = blocks_net(), blocks_net()
    other.weights["one.conv.weight"] = other.weights["one.conv.weight"] * 3
    for proxy in PROXIES:
        assert value(network, proxy, random_batch()) == value(other, proxy, random_batch(seed=9))


def test_a_cut_network() -> None:
    network, batch = in_blocks(IMAGE, Conv(4, 3), Zero(), Conv(4, 3)), random_batch()
    for proxy, why in zip(PROXIES, ("constant", "constant", "no gradient passes"), strict=True):
        found = score(network, proxy, batch)
        assert found.status == "degenerate"
        assert why in found.why


def test_blocks_side_by_side_pass_no_gradient() -> None:
    found = score(conv_net(), "az_trainability", random_batch())
    assert found.status == "degenerate"
    assert "no gradient passes" in found.why


def test_a_block_that_leads_nowhere_is_constant() -> None:
    found = score(dead_path_net(), "az_expressivity", random_batch())
    assert found.status == "degenerate"
    assert "constant" in found.why


def test_a_resolution_that_cannot_be_folded() -> None:
    """Seven places become four."""
    network = in_blocks((2, 7, 7), Identity(), AvgPool(3, 2, padding=1), Conv(2, 1))
    found = score(network, "az_trainability", random_batch((2, 7, 7)))
    assert found.status == "degenerate"
    assert "whole fraction" in found.why


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_network_without_blocks(proxy: str) -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], relu=True), proxy, random_batch((2,)))
    assert found.status == "degenerate"
    assert "at least two blocks" in found.why
