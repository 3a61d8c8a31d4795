"""params against counts by hand, and against the parameters of ordinary layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from epochzero.engine import PlanNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    chain,
    cut_net,
    drawn,
    layerless_net,
    random_batch,
    shared_net,
    unlabelled,
    value,
)


def test_by_hand() -> None:
    # weights 4*2*3*3 and bias 4; scale and shift 4 + 4, no running statistics; weights 3*4 and bias 3
    plan = chain(IMAGE, Conv(4, 3, bias=True), BatchNorm(), ReLU(), GlobalAvgPool(), Linear(3))
    assert value(drawn(plan), "params", random_batch()) == 72 + 4 + 8 + 12 + 3


def test_groups_divide_the_weights_and_a_plain_norm_has_none() -> None:
    plan = chain(IMAGE, Conv(4, 3, groups=2), BatchNorm(affine=False), GlobalAvgPool(), Linear(3, bias=False))
    assert value(drawn(plan), "params", random_batch()) == 4 * 1 * 9 + 12


def test_a_shared_weight_counts_once() -> None:
    # 1x1 stem 2 -> 3, norm, one 3x3 convolution 3 -> 3 used twice, head
    assert value(shared_net(), "params", random_batch()) == 6 + 6 + 81 + (9 + 3)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_counts_what_ordinary_layers_hold(make: Callable[[], PlanNetwork]) -> None:
    network = make()
    held = sum(parameter.numel() for parameter in Twin(network).parameters())
    assert value(network, "params", unlabelled(random_batch())) == held


def test_a_network_without_layers_has_none() -> None:
    assert value(layerless_net(), "params", random_batch((3, 6, 6))) == 0
