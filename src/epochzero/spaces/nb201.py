r"""NAS-Bench-201: one cell of four nodes and six edges, each edge one of five operations.

    |op~0|+|op~0|op~1|+|op~0|op~1|op~2|      the three nodes after the input, each with its incoming edges

A node is the sum of its edges. The network: a stem of 16 channels, then three stages of five cells with 16, 32
and 64 channels, a residual block of stride 2 between stages; batch norm, ReLU, global pooling, classifier.
5^6 = 15,625 architectures, of which 6,466 are distinct once cells that compute the same function by symmetry
are joined (`key`).

Dong, Yang. NAS-Bench-201: extending the scope of reproducible neural architecture search. ICLR 2020.
arXiv:2001.00326
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Identity, Zero
from epochzero.registry import near_miss, spaces
from epochzero.types import Shape

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))
"""(to, from), in the order of the text form"""
CELLS = 5
WIDTHS = (16, 32, 64)

Cell = tuple[str, ...]
"""The operation of each edge, in the order of `EDGES`."""

NORM, RELU, SUM = BatchNorm(), ReLU(), Add()
EDGE = re.compile(r"([^~|+]+)~(\d+)")


class NB201:
    """The topology space of NAS-Bench-201 and NATS-Bench."""

    name = "nb201"
    cell_block = "cell0"
    """the block to draw when people ask for the cell"""

    def parse(self, text: str) -> Cell:
        """The architecture that a string such as `|nor_conv_3x3~0|+...` stands for."""
        nodes = text.strip().split("+")
        if len(nodes) != 3:
            raise UserError(f"{_quoted(text)} has {len(nodes)} nodes joined by '+'; an nb201 string has 3.")
        cell = []
        for to, node in enumerate(nodes, start=1):
            edges = node.split("|")[1:-1] if node.startswith("|") and node.endswith("|") else []
            if len(edges) != to:
                raise UserError(f"Node {to} of {_quoted(text)} should hold {to} edges, each as |op~source|.")
            for source, edge in enumerate(edges):
                match = EDGE.fullmatch(edge)
                if match is None or match[2] != str(source):
                    raise UserError(f"Edge {_quoted(edge)} of node {to} should be written as op~{source}.")
                if match[1] not in OPS:
                    hint = near_miss(match[1], list(OPS))
                    raise UserError(f"nb201 has no operation {_quoted(match[1])}.{hint} It has {', '.join(OPS)}.")
                cell.append(match[1])
        return tuple(cell)

    def text(self, arch: Cell) -> str:
        """The community's string for an architecture; `parse` inverts it."""
        a, b, c, d, e, f = arch
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def key(self, arch: Cell) -> str:
        """A string that two cells share when they compute the same function by symmetry.

        Each node is written as the sorted sum of its incoming edges, a cut edge as #, a skip as its source: the
        benchmark's own rule, which gives its 6,466 classes. (It does not drop the # from a sum.)
        """
        written = ["0"]
        for to in (1, 2, 3):
            terms = []
            for (target, source), op in zip(EDGES, arch, strict=True):
                if target == to:
                    cut = op == "none" or written[source] == "#"
                    kept = written[source] if op == "skip_connect" else f"({written[source]})@{op}"
                    terms.append("#" if cut else kept)
            written.append("+".join(sorted(terms)))
        return written[3]

    def count(self) -> int:
        return int(len(OPS) ** len(EDGES))

    def __iter__(self) -> Iterator[Cell]:
        """Every architecture once."""
        return itertools.product(OPS, repeat=len(EDGES))

    def sample(self, rng: Random) -> Cell:
        """Uniform over all 15,625."""
        return tuple(rng.choices(OPS, k=len(EDGES)))

    def mutate(self, arch: Cell, rng: Random) -> Cell:
        """One edge gets another operation, uniform over the 24 neighbours."""
        edge = rng.randrange(len(EDGES))
        other = rng.choice([op for op in OPS if op != arch[edge]])
        return (*arch[:edge], other, *arch[edge + 1 :])

    def neighbours(self, arch: Cell) -> list[Cell]:
        """The 24 architectures one edge away."""
        return [(*arch[:edge], op, *arch[edge + 1 :]) for edge in range(len(EDGES)) for op in OPS if op != arch[edge]]

    def smallest(self) -> Cell:
        """The architecture with the fewest parameters and multiply-accumulates."""
        return ("none",) * len(EDGES)

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        """The whole network of a cell; its two halvings want images whose sides are multiples of four."""
        if len(input_shape) != 3 or input_shape[1] % 4 or input_shape[2] % 4:
            shape = "x".join(map(str, input_shape))
            raise UserError(f"nb201 takes images CxHxW with H and W multiples of 4, such as 3x32x32, not {shape}.")
        net = Builder()
        x = net.inline(_stem(input_shape), net.input(input_shape), name="stem")
        for stage, width in enumerate(WIDTHS):
            if stage:
                x = net.inline(_reduction(width, net.shape(x)), x, name=f"reduce{stage}")
            cell = _cell(arch, net.shape(x))
            for i in range(CELLS):
                x = net.inline(cell, x, name=f"cell{stage * CELLS + i}")
        net.inline(_head(num_classes, net.shape(x)), x, name="head")
        return net.plan()


def _quoted(text: str) -> str:
    """Text as it was given, shortened for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _chain(shape: Shape, **ops: Op) -> Plan:
    net = Builder()
    x = net.input(shape)
    for name, op in ops.items():
        x = net.add(op, x, name=name)
    return net.plan()


@lru_cache(maxsize=256)
def _conv(width: int, kernel: int, stride: int, shape: Shape) -> Plan:
    return _chain(shape, relu=RELU, conv=Conv(width, kernel, stride, padding=kernel // 2), norm=NORM)


@lru_cache(maxsize=256)
def _edge(op: str, shape: Shape) -> Plan:
    match op:
        case "none":
            return _chain(shape, zero=Zero())
        case "skip_connect":
            return _chain(shape, skip=Identity())
        case "avg_pool_3x3":
            return _chain(shape, pool=AvgPool(3, 1, padding=1))
    return _conv(shape[0], int(op[-1]), 1, shape)


@lru_cache(maxsize=256)
def _cell(arch: Cell, shape: Shape) -> Plan:
    net = Builder()
    nodes = [net.input(shape)]
    arriving: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for (to, source), op in zip(EDGES, arch, strict=True):
        if len(nodes) < to:
            nodes.append(net.add(SUM, *arriving[to - 1], name=f"node{to - 1}"))
        arriving[to].append(net.inline(_edge(op, shape), nodes[source], name=f"edge{to}{source}"))
    net.add(SUM, *arriving[3], name="node3")
    return net.plan()


@lru_cache(maxsize=256)
def _stem(shape: Shape) -> Plan:
    return _chain(shape, conv=Conv(WIDTHS[0], 3, padding=1), norm=NORM)


@lru_cache(maxsize=256)
def _reduction(width: int, shape: Shape) -> Plan:
    """Two convolutions, the first of stride 2, beside average pooling and a 1x1 convolution without norm."""
    net = Builder()
    x = net.input(shape)
    main = net.inline(_conv(width, 3, 2, shape), x, name="conv1")
    main = net.inline(_conv(width, 3, 1, net.shape(main)), main, name="conv2")
    side = net.inline(_chain(shape, pool=AvgPool(2, 2), conv=Conv(width, 1)), x, name="shortcut")
    net.add(SUM, side, main, name="sum")
    return net.plan()


@lru_cache(maxsize=256)
def _head(num_classes: int, shape: Shape) -> Plan:
    return _chain(shape, norm=NORM, relu=RELU, pool=GlobalAvgPool(), linear=Linear(num_classes))


spaces.register("nb201", NB201())
