"""Convolutions of many networks as products of matrices, and one after the other, against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from epochzero.engine.gpu import fused
from epochzero.engine.population import grouped_kernels
from epochzero.engine.population.grouped_kernels import GroupedConv, conv_products, recorded_conv_products
from epochzero.engine.population.grouped_ops import grouped
from epochzero.engine.population.merge import merge
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.conv import Conv

GEOMETRIES = [
    # groups, channels in and out of each, kernel, stride, padding
    (3, 2, 4, (3, 3), (1, 1), (1, 1)),
    (5, 3, 2, (1, 1), (1, 1), (0, 0)),
    (4, 2, 2, (3, 3), (2, 2), (1, 1)),
    (2, 4, 3, (1, 1), (2, 2), (0, 0)),
    (2, 1, 1, (1, 7), (1, 2), (0, 3)),
]


@pytest.mark.parametrize(("groups", "inputs", "outputs", "kernel", "stride", "padding"), GEOMETRIES)
@pytest.mark.parametrize("images", [1, 3])
def test_values_and_gradients_are_those_of_torch(
    groups: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    images: int,
) -> None:
    torch.manual_seed(0)
    x = torch.randn(images, groups * inputs, 8, 9, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(groups * outputs, inputs, *kernel, dtype=torch.float64, requires_grad=True)
    ours = conv_products(x, weight, stride, padding, 1, groups)
    theirs = F.conv2d(x, weight, None, stride, padding, 1, groups)
    torch.testing.assert_close(ours, theirs)
    back = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [x, weight], back)
    torch.testing.assert_close(torch.autograd.grad(ours, [x, weight], back), expected)

    with torch.no_grad():
        recorded, way_back = recorded_conv_products(x, weight, stride, padding, 1, groups)
        (of_x,), (of_weight,) = way_back(back, [True], [True], False)
        (through,), (unwanted,) = way_back(back, [True], [False], True)
    torch.testing.assert_close(recorded, theirs)
    torch.testing.assert_close((of_x, of_weight), expected)
    torch.testing.assert_close(through, torch.where(x > 0, expected[0], 0))
    assert unwanted is None and way_back(back, [False], [True], False)[0] == [None]


CONVS = [
    # channels of a network, its convolution
    (3, Conv(4, 3, padding=1)),
    (4, Conv(5, 1)),
    (4, Conv(4, 1, bias=True)),
    (3, Conv(2, 1, stride=2)),
    (4, Conv(8, 3, padding=1, groups=2)),
    (4, Conv(4, 3, padding=2, dilation=2, groups=4)),
    (2, Conv(3, (1, 5), padding=(0, 2), bias=True)),
]


@pytest.mark.parametrize(("channels", "conv"), CONVS)
@pytest.mark.parametrize("networks", [1, 3])
@pytest.mark.parametrize("busy", [0, 2**40])
def test_every_way_gives_what_the_library_gives(
    channels: int, conv: Conv, networks: int, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = grouped(conv, networks, (channels, 7, 7))
    assert isinstance(op, GroupedConv)
    torch.manual_seed(0)
    x = torch.randn(2, networks * channels, 7, 7, dtype=torch.float64, requires_grad=True)
    shapes = [param.shape for param in op.params((networks * channels, 7, 7)).values()]
    w = tuple([torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes])
    theirs = op.run((x,), w)
    along = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [x, *w], along)
    monkeypatch.setattr(grouped_kernels, "slow_in_groups", lambda x: True)
    monkeypatch.setattr(grouped_kernels, "BUSY", busy)
    way = op.way(x, w)
    depthwise = conv.groups == channels
    simple = not conv.bias and networks > 1
    assert way == ("library" if depthwise else "products" if simple and busy else "each")
    ours = op.run((x,), w)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, [x, *w], along), expected)
    with torch.no_grad():
        recorded, back = op.recorded((x,), w)  # type: ignore[misc]
        of_x, of_w = back(along, [True], [True] * len(w), True)
        nothing, only_w = back(along, [False], [True] * len(w), False)
    torch.testing.assert_close(recorded, theirs)
    torch.testing.assert_close(of_x, [torch.where(x > 0, expected[0], 0)])
    torch.testing.assert_close(of_w, list(expected[1:]))
    assert nothing == [None]
    torch.testing.assert_close(only_w, list(expected[1:]))


def test_our_kernels_are_for_shapes_that_many_networks_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "available", lambda x: True)
    x = torch.zeros(1, 3 * 16, 4, 4)
    for conv, common, way in (
        (Conv(16, 3, padding=1), True, "ours"),
        (Conv(16, 3, padding=1), False, "library"),
        (Conv(16, 3, padding=1, bias=True), True, "library"),
        (Conv(16, 3, padding=1, groups=16), True, "library"),
    ):
        op = grouped(conv, 3, (16, 4, 4), common=common)
        assert isinstance(op, GroupedConv)
        w = tuple([torch.zeros(param.shape) for param in op.params((48, 4, 4)).values()])
        assert op.way(x, w) == way


def test_a_shape_is_common_if_half_of_the_networks_have_it() -> None:
    def plan(width: int) -> Plan:
        net = Builder()
        x = net.add(Conv(5, 3, padding=1), net.input((3, 8, 8)), name="first")
        x = net.add(Conv(width, 3, padding=1), x, name="second")
        net.add(Conv(9, 3, padding=1), x, name="third")
        return net.plan()

    merged = merge([plan(width) for width in (4, 4, 8, 6)])
    ops = [node.op for node in merged.plan.nodes if isinstance(node.op, GroupedConv)]
    assert [(op.out_channels // op.networks, op.common) for op in ops] == [
        *((5, True), (4, True), (8, False), (6, False)),
        *((9, True), (9, False), (9, False)),
    ]
