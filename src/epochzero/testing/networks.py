"""Small networks of three kinds, for checks that compare populations with one network at a time.

    cells           convolutional cells that differ in their edges, and in how many there are
    widths          convolutions of unequal widths, plain, grouped and depthwise, with gates
    transformers    attention and perceptrons on tokens, of unequal widths, heads and depths

All take images of `SHAPE` and give `CLASSES` logits, so that networks of different kinds can form a population.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from torch import nn

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import GELU, ReLU, Sigmoid
from epochzero.plan.ops.attention import Attention, RelativeAttention
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm, LayerNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool, MaxPool, TokenMean
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.plan.ops.wiring import Add, Concat, Identity, Multiply, Zero
from epochzero.types import Shape

SHAPE: Shape = (3, 8, 8)
CLASSES = 3
DEEPEST = 3
Make = Callable[[Random, int], Plan]
"""A network of this many cells, convolutions or layers."""


def cells(rng: Random, depth: int) -> Plan:
    net = Builder()
    x = net.inline(chain(SHAPE, conv=Conv(4, 3, padding=1), norm=BatchNorm()), net.input(SHAPE), name="stem")
    for i in range(depth):
        if i == 1:
            half = chain(net.shape(x), relu=ReLU(), conv=Conv(6, 3, stride=2, padding=1), norm=BatchNorm())
            x = net.inline(half, x, name="reduction")
        x = net.inline(_cell(rng, net.shape(x)), x, name=f"cell{i}")
    head = chain(net.shape(x), norm=BatchNorm(), relu=ReLU(), pool=GlobalAvgPool(), linear=Linear(CLASSES))
    net.inline(head, x, name="head")
    return net.plan()


def _cell(rng: Random, shape: Shape) -> Plan:
    """Three nodes and the input: each reads those before it, and the last two are joined and narrowed."""
    channels = shape[0]
    edges: Sequence[Sequence[Op]] = (
        (ReLU(), Conv(channels, 3, padding=1), BatchNorm()),
        (ReLU(), Conv(channels, 1), BatchNorm()),
        (AvgPool(3, 1, 1),),
        (MaxPool(3, 1, 1),),
        (Identity(),),
        (Zero(),),
    )
    net = Builder()
    nodes = [net.input(shape)]
    for to in range(1, 4):
        arriving = []
        for source, x in enumerate(nodes):
            last = x
            for step, op in enumerate(rng.choice(edges)):
                last = net.add(op, last, name=f"edge{to}{source}.op{step}")
            arriving.append(last)
        nodes.append(net.add(Add(), nodes[0], *arriving, name=f"node{to}"))
    joined = net.add(Concat(), *nodes[2:], name="join")
    net.add(Conv(channels, 1), joined, name="narrow")
    return net.plan()


def widths(rng: Random, depth: int) -> Plan:
    net = Builder()
    x = net.input(SHAPE)
    for i in range(depth + 1):
        width, kernel, groups = rng.choice((4, 6, 8)), rng.choice((1, 3)), rng.choice((1, 2)) if i else 1
        conv = Conv(width, kernel, 2 if i == 1 else 1, padding=kernel // 2, groups=groups)
        x = net.inline(chain(net.shape(x), conv=conv, norm=BatchNorm(), relu=ReLU()), x, name=f"conv{i}")
        if rng.random() < 0.5:
            depthwise = Conv(width, 3, padding=1, groups=width, bias=True)
            x = net.inline(chain(net.shape(x), depthwise=depthwise, relu=ReLU()), x, name=f"depthwise{i}")
        if rng.random() < 0.5:
            x = net.inline(_gated(net.shape(x)), x, name=f"gate{i}")
    net.inline(chain(net.shape(x), pool=GlobalAvgPool(), linear=Linear(CLASSES)), x, name="head")
    return net.plan()


def _gated(shape: Shape) -> Plan:
    net = Builder()
    x = net.input(shape)
    gate = net.add(Conv(shape[0], 1, bias=True), net.add(GlobalAvgPool(keep=True), x, name="pool"), name="expand")
    net.add(Multiply(), x, net.add(Sigmoid(), gate, name="sigmoid"), name="scaled")
    return net.plan()


def transformers(rng: Random, depth: int) -> Plan:
    width = 8 if depth % 2 else 6  # networks have layers in common: those of equal shapes run together
    net = Builder()
    patches = Conv(width, 4, stride=4, bias=True)
    stem = chain(SHAPE, patches=patches, tokens=ToTokens(), first=ClassToken(), positions=PositionEmbedding())
    x = net.inline(stem, net.input(SHAPE), name="stem")
    for i in range(depth):
        x = net.inline(_layer(rng, net.shape(x), heads=1 + i % 2), x, name=f"layer{i}")
    head = chain(net.shape(x), norm=LayerNorm(), mean=TokenMean(start=1), linear=Linear(CLASSES))
    net.inline(head, x, name="head")
    return net.plan()


def _layer(rng: Random, shape: Shape, heads: int) -> Plan:
    width = shape[1]
    attention = rng.choice((Attention(heads), RelativeAttention(heads, farthest=1)))
    inner: dict[str, Op] = {"norm": LayerNorm(), "qkv": Linear(3 * heads * 4), "heads": attention}
    mlp = chain(shape, norm=LayerNorm(), widen=Linear(rng.choice((8, 12))), gelu=GELU(), narrow=Linear(width))
    net = Builder()
    x = net.input(shape)
    attended = net.inline(chain(shape, **inner, project=Linear(width)), x, name="attention")
    x = net.add(Add(), x, attended, name="attended")
    net.add(Add(), x, net.inline(mlp, x, name="mlp"), name="sum")
    return net.plan()


KINDS: dict[str, Make] = {"cells": cells, "widths": widths, "transformers": transformers}


def printed(plan: Plan) -> nn.Module | None:
    """The network that the printed code makes; None where an op has no code, as printing says."""
    try:
        source = plan.code()
    except UserError:
        return None
    names: dict[str, Any] = {}
    exec(compile(source, "printed", "exec"), names)
    network: nn.Module = names["Network"]()
    return network


def some(kind: str, count: int, seed: int = 0) -> list[Plan]:
    """Networks of one kind, from shallow to deep and over again."""
    rng = Random(f"{kind}/{seed}")
    return [KINDS[kind](rng, 1 + i % DEEPEST) for i in range(count)]
