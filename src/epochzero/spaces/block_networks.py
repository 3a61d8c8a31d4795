"""The networks of ZenNAS's block strings: rows of residual units, and ZenNAS's own two counters.

A sub-layer of a body block is one or two residual units: convolutions, each with a batch norm after it and a ReLU
before the next, whose result is added to their input and passed through a ReLU. The input is projected (1x1 convolution
with bias, batch norm) in the first unit of every block, and where its width differs from the output's. Batch norms have
eps = 1e-3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU, Sigmoid
from epochzero.plan.ops.base import pair
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Multiply
from epochzero.spaces.base import pooled_classifier
from epochzero.spaces.budget import Size
from epochzero.types import Shape

NORM, RELU = BatchNorm(eps=1e-3), ReLU()


class Block(NamedTuple):
    """One block of the string; its input channels are the output channels of the block before."""

    kind: str
    width: int
    stride: int
    bottleneck: int = 0
    """bottleneck width; 0 for the first and last convolution"""
    layers: int = 1
    """number of sub-layers"""


Arch = tuple[Block, ...]
Convs = tuple[Conv, ...]
"""The convolutions of one residual unit."""
SubLayer = Callable[[Block, int], tuple[Convs, ...]]
"""The residual units of one sub-layer of a block, given its stride."""


def network(arch: Arch, sub_layer: SubLayer, num_classes: int, input_shape: Shape, squeeze: bool) -> Plan:
    """Returns the network: first convolution, blocks, last convolution, mean over space, classifier."""
    net = Builder()
    x = net.inline(_end(arch[0], 3, input_shape), net.input(input_shape), name="first")
    for i, block in enumerate(arch[1:-1], start=1):
        x = net.inline(_block(block, sub_layer, net.shape(x), squeeze), x, name=f"block{i}")
    x = net.inline(_end(arch[-1], 1, net.shape(x)), x, name="last")
    net.inline(pooled_classifier(num_classes, net.shape(x)), x, name="head")
    return net.plan()


def _end_conv(block: Block, kernel: int) -> Conv:
    return Conv(block.width, kernel, block.stride, padding=kernel // 2)


@lru_cache(maxsize=1024)
def _end(block: Block, kernel: int, shape: Shape) -> Plan:
    return chain(shape, conv=_end_conv(block, kernel), norm=NORM, relu=RELU)


@lru_cache(maxsize=4096)
def _block(block: Block, sub_layer: SubLayer, shape: Shape, squeeze: bool) -> Plan:
    net = Builder()
    x = net.input(shape)
    for layer in range(block.layers):
        for i, convs in enumerate(sub_layer(block, 1 if layer else block.stride)):
            begins = layer == i == 0
            unit = _unit(convs, begins or net.shape(x)[0] != convs[-1].out_channels, net.shape(x), squeeze)
            x = net.inline(unit, x, name=f"layer{layer}unit{i}")
    return net.plan()


@lru_cache(maxsize=8192)
def _unit(convs: Convs, project: bool, shape: Shape, squeeze: bool) -> Plan:
    net = Builder()
    x = y = net.input(shape)
    for i, conv in enumerate(convs):
        y = net.add(NORM, net.add(conv, y, name=f"conv{i}"), name=f"norm{i}")
        if i < len(convs) - 1:
            y = net.add(RELU, y, name=f"relu{i}")
        if squeeze and i == len(convs) - 2:
            y = net.inline(_gate(net.shape(y)), y, name="gate")
    if project:
        stride = math.prod(pair(conv.stride)[0] for conv in convs)
        x = net.add(Conv(convs[-1].out_channels, 1, stride, bias=True), x, name="side.conv")
        x = net.add(NORM, x, name="side.norm")
    net.add(RELU, net.add(Add(), y, x, name="sum"), name="relu")
    return net.plan()


@lru_cache(maxsize=4096)
def _gate(shape: Shape) -> Plan:
    """Squeeze and excitation with a quarter of the channels inside, and batch norms instead of biases."""
    net = Builder()
    x = net.input(shape)
    gate = net.add(GlobalAvgPool(keep=True), x, name="pool")
    gate = net.add(NORM, net.add(Conv(max(1, round(shape[0] / 4)), 1), gate, name="squeeze"), name="norm0")
    gate = net.add(RELU, gate, name="relu")
    gate = net.add(NORM, net.add(Conv(shape[0], 1), gate, name="excite"), name="norm1")
    net.add(Multiply(), x, net.add(Sigmoid(), gate, name="sigmoid"), name="scaled")
    return net.plan()


def size(arch: Arch, sub_layer: SubLayer, num_classes: int, input_shape: Shape) -> Size:
    """Returns the size of `network`, about ten times faster than from its plan."""
    params, flops, shape = _unit_size((_end_conv(arch[0], 3),), False, input_shape)
    for block in arch[1:-1]:
        more_params, more_flops, shape = _block_size(block, sub_layer, shape)
        params, flops = params + more_params, flops + more_flops
    more_params, more_flops, (channels, *_) = _unit_size((_end_conv(arch[-1], 1),), False, shape)
    classifier = channels * num_classes
    return Size(params + more_params + classifier + num_classes, flops + more_flops + classifier)


@lru_cache(maxsize=16384)
def _block_size(block: Block, sub_layer: SubLayer, shape: Shape) -> tuple[int, int, Shape]:
    params = flops = 0
    for layer in range(block.layers):
        for i, convs in enumerate(sub_layer(block, 1 if layer else block.stride)):
            project = layer == i == 0 or shape[0] != convs[-1].out_channels
            more_params, more_flops, shape = _unit_size(convs, project, shape)
            params, flops = params + more_params, flops + more_flops
    return params, flops, shape


def _unit_size(convs: Convs, project: bool, shape: Shape) -> tuple[int, int, Shape]:
    """Returns parameters, multiply-accumulates and output shape of convolutions with norms and a projection."""
    params = flops = 0
    channels, h, w = shape
    for conv in convs:
        weights = conv.out_channels * (channels // conv.groups) * math.prod(pair(conv.kernel))
        down, across = pair(conv.stride)
        channels, h, w = conv.out_channels, -(-h // down), -(-w // across)
        params += weights + 2 * channels
        flops += weights * h * w
    if project:
        weights = shape[0] * channels
        params += weights + 3 * channels
        flops += weights * h * w
    return params, flops, (channels, h, w)


def zennas_flops(plan: Plan) -> int:
    """Returns ZenNAS's own count, which the budgets of its papers use, for image sides that every stride divides.

    It is the multiply-accumulates, plus one for each output of a batch norm. Projections count as if their stride
    applied twice, so their count is too low.
    """
    total = 0.0
    for node in plan.nodes:
        if node.op.kind in ("conv", "norm", "linear"):
            cost = plan.weights[node.params[0]].numel * math.prod(node.shape[1:])
            conv = plan.nodes[node.inputs[0]].op if node.op.kind == "norm" else node.op
            again = pair(conv.stride) if isinstance(conv, Conv) and ".side." in node.name else (1, 1)
            total += cost / (again[0] * again[1])
    return round(total)


def zennas_params(plan: Plan) -> int:
    """Returns ZenNAS's own model size: the weights, one per channel of a norm, and one for the last bias."""
    counted = (node for node in plan.nodes if node.op.kind in ("conv", "norm", "linear"))
    return 1 + sum(plan.weights[node.params[0]].numel for node in counted)
