"""flops against multiplications counted in loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from epochzero.engine import PlanNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
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
    value,
)


def multiplications(layer: nn.Module, given: Tensor, output: Tensor) -> int:
    """Of one sample; the zeros that pad a map are multiplied like any number."""
    if isinstance(layer, nn.Linear):
        return sum(1 for _ in product(range(given[0].numel()), range(layer.out_features)))
    if isinstance(layer, nn.Conv2d):
        within_group = given.shape[1] // layer.groups
        window = product(range(within_group), *map(range, layer.kernel_size))
        return sum(1 for _ in product(*map(range, output[0].shape), window))
    return 0


def test_by_hand() -> None:
    # 4x4 positions * 5 outputs * (2*3*3) inputs; norms, ReLUs and pools are free; 5 * 3
    plan = chain(IMAGE, Conv(5, 3), BatchNorm(), ReLU(), AvgPool(2, 2), GlobalAvgPool(), Linear(3))
    assert value(drawn(plan), "flops", random_batch()) == 16 * 5 * 18 + 15


def test_stride_and_groups_divide_the_work() -> None:
    plan = chain(IMAGE, Conv(4, 3, stride=2, padding=1, groups=2), GlobalAvgPool(), Linear(3))
    assert value(drawn(plan), "flops", random_batch()) == 9 * 4 * (1 * 9) + 12


def test_a_shared_weight_works_each_time() -> None:
    # 1x1 stem 2 -> 3, twice a 3x3 convolution 3 -> 3, all on 6x6 maps; head
    assert value(shared_net(), "flops", random_batch()) == 36 * (2 * 3) + 2 * 36 * (3 * 3 * 9) + 9


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_counts_every_multiplication(make: Callable[[], PlanNetwork]) -> None:
    network = make()
    twin = Twin(network)
    twin(torch.zeros(1, *IMAGE, dtype=torch.float64))
    assert value(network, "flops", random_batch()) == sum(multiplications(*layer) for layer in twin.outputs)


def test_a_network_without_layers_does_none() -> None:
    assert value(layerless_net(), "flops", random_batch((3, 6, 6))) == 0
