r"""NAS-Bench-201: one cell of four nodes and six edges, each edge one of five operations.

    |op~0|+|op~0|op~1|+|op~0|op~1|op~2|      the three nodes after the input, each with its incoming edges

A node is the sum of its edges. The network has a stem of 16 channels, three stages of five cells with 16, 32 and 64
channels, and a residual block of stride 2 between stages; then batch norm, ReLU, global pooling, classifier. There are
5^6 = 15,625 architectures, of which 6,466 remain when cells that compute the same function by symmetry are merged
(`key`).

Dong, Yang. NAS-Bench-201: extending the scope of reproducible neural architecture search. ICLR 2020.
arXiv:2001.00326
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Concat, Identity, Shift, Zero
from epochzero.registry import check_known, spaces
from epochzero.spaces.base import check_classes, quoted
from epochzero.spaces.product import Product
from epochzero.types import Shape

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))
"""(to, from), in the order of the text form"""
CELLS = 5
WIDTHS = (16, 32, 64)

Cell = tuple[str, ...]
"""The operation of each edge, in the order of `EDGES`."""
Block = Callable[[int, Shape], Plan]
"""Makes the cell of a width for an input of a shape."""

NORM, RELU, SUM = BatchNorm(), ReLU(), Add()
EDGE = re.compile(r"([^~|+]+)~(\d+)")


class NB201(Product[str]):
    """The topology space of NAS-Bench-201 and NATS-Bench."""

    name = "nb201"
    choices = OPS
    places = len(EDGES)
    cell_block = "cell0"
    """block to draw as the cell"""

    def parse(self, text: str) -> Cell:
        """Returns the architecture of a string such as `|nor_conv_3x3~0|+...`."""
        nodes = text.strip().split("+")
        if len(nodes) != 3:
            raise UserError(f"An nb201 string is 3 nodes joined by '+', not {len(nodes)}: {quoted(text)}.")
        cell = []
        for to, node in enumerate(nodes, start=1):
            edges = node.split("|")[1:-1] if node.startswith("|") and node.endswith("|") else []
            if len(edges) != to:
                wanted = "".join(f"|op~{source}" for source in range(to))
                raise UserError(f"Node {to} of {quoted(text)} should be written as {wanted}|.")
            for source, edge in enumerate(edges):
                match = EDGE.fullmatch(edge)
                if match is None or match[2] != str(source):
                    raise UserError(f"Edge {quoted(edge)} of node {to} should be written as op~{source}.")
                check_known(match[1], OPS, f"nb201 has no operation {quoted(match[1])}", "It has")
                cell.append(match[1])
        return tuple(cell)

    def text(self, arch: Cell) -> str:
        a, b, c, d, e, f = arch
        return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"

    def key(self, arch: Cell) -> str:
        """Returns a string that two cells share if they compute the same function by symmetry.

        Each node is the sorted sum of its incoming edges, a cut edge is #, a skip is its source: the benchmark's own
        rule, which gives its 6,466 classes. (It does not drop the # from a sum.)
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

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        """Returns the network of a cell, for images whose sides are multiples of four."""
        check_task(self.name, num_classes, input_shape)
        network, stages = _example(num_classes, input_shape, WIDTHS, CELLS)
        own = {stage: cell(arch, width, 1, stage.output_shape) for stage, width in zip(stages, WIDTHS, strict=True)}
        return network.with_parts([own.get(part, part) for part in network.parts])


@lru_cache(maxsize=256)
def _example(num_classes: int, input_shape: Shape, widths: tuple[int, ...], cells: int) -> tuple[Plan, list[Plan]]:
    """Returns the network of a cell of skips, and the cell of each stage: other networks differ only in cells."""
    stages: list[Plan] = []

    def skips(width: int, shape: Shape) -> Plan:
        stages.append(cell(("skip_connect",) * len(EDGES), width, 1, shape))
        return stages[-1]

    return skeleton(skips, num_classes, input_shape, widths, cells), stages


# Parts for related spaces


def skeleton(
    block: Block, num_classes: int, input_shape: Shape, widths: Sequence[int], cells: int, vectors: Sequence[str] = ()
) -> Plan:
    """The network of any cell, which may also read input vectors of these names, with one number per operation."""
    net = Builder()
    image = net.input(input_shape)
    weights = [net.input((len(OPS),), name) for name in vectors]
    x = net.inline(stem(widths[0], input_shape), image, name="stem")
    for stage, width in enumerate(widths):
        if stage:
            x = net.inline(reduction(width, net.shape(x)), x, name=f"reduce{stage}")
        repeated = block(width, net.shape(x))
        for i in range(cells):
            x = net.inline(repeated, x, *weights, name=f"cell{stage * cells + i}")
    net.inline(head(num_classes, net.shape(x)), x, name="head")
    return net.plan()


def check_task(space: str, num_classes: int, shape: Shape) -> None:
    """Raises UserError for an input that cannot be halved twice, or for no classes."""
    check_classes(space, num_classes)
    if len(shape) != 3 or min(shape) < 1 or shape[1] % 4 or shape[2] % 4:
        raise UserError(
            f"{space} takes images CxHxW with H and W multiples of 4, such as 3x32x32, not {shape_text(shape)}."
        )


@lru_cache(maxsize=1024)
def conv(width: int, kernel: int, stride: int, shape: Shape) -> Plan:
    return chain(shape, relu=RELU, conv=Conv(width, kernel, stride, padding=kernel // 2), norm=NORM)


@lru_cache(maxsize=1024)
def edge(op: str, width: int, stride: int, shape: Shape) -> Plan:
    """An operation from one node to another, which may change the width or, at stride 2, halve the size.

    A skip that changes the width is a 1x1 convolution with a norm; at stride 2, a factorized reduction.
    """
    same = stride == 1 and width == shape[0]
    match op:
        case "none":
            return chain(shape, zero=Zero() if same else Zero(width, stride))
        case "skip_connect" if same:
            return chain(shape, skip=Identity())
        case "skip_connect":
            return (
                chain(shape, conv=Conv(width, 1), norm=NORM)
                if stride == 1
                else factorized(width, NORM, ("even", "odd"), shape)
            )
        case "avg_pool_3x3":
            return chain(shape, pool=AvgPool(3, stride, padding=1))
    return conv(width, int(op[-1]), stride, shape)


@lru_cache(maxsize=256)
def factorized(width: int, norm: BatchNorm, names: tuple[str, str], shape: Shape) -> Plan:
    """A factorized reduction: half of the channels see the pixels at even places, the others those at odd places."""
    net = Builder()
    x = net.add(RELU, net.input(shape), name="relu")
    even = net.add(Conv(width // 2, 1, 2), x, name=names[0])
    odd = net.add(Conv(width - width // 2, 1, 2), net.add(Shift(), x, name="shift"), name=names[1])
    net.add(norm, net.add(Concat(), even, odd, name="join"), name="norm")
    return net.plan()


@lru_cache(maxsize=1024)
def cell(arch: Cell, width: int, stride: int, shape: Shape) -> Plan:
    """A cell; the edges from its input change the map to the cell's width and stride."""
    empty, edges = _edges(width, stride, shape)
    return empty.with_parts([by_op[op] for by_op, op in zip(edges, arch, strict=True)])


@lru_cache(maxsize=1024)
def _edges(width: int, stride: int, shape: Shape) -> tuple[Plan, list[dict[str, Plan]]]:
    """A cell of cut edges, and the operations that may replace each."""
    net = Builder()
    nodes = [net.input(shape)]
    arriving: dict[int, list[int]] = {1: [], 2: [], 3: []}
    edges = []
    for to, source in EDGES:
        if len(nodes) < to:
            nodes.append(net.add(SUM, *arriving[to - 1], name=f"node{to - 1}"))
        given = net.shape(nodes[source])
        edges.append({op: edge(op, width, 1 if source else stride, given) for op in OPS})
        arriving[to].append(net.inline(edges[-1]["none"], nodes[source], name=f"edge{to}{source}"))
    net.add(SUM, *arriving[3], name="node3")
    return net.plan(), edges


@lru_cache(maxsize=256)
def stem(width: int, shape: Shape) -> Plan:
    return chain(shape, conv=Conv(width, 3, padding=1), norm=NORM)


@lru_cache(maxsize=1024)
def reduction(width: int, shape: Shape) -> Plan:
    """Two convolutions, the first of stride 2, added to average pooling and a 1x1 convolution without norm."""
    net = Builder()
    x = net.input(shape)
    main = net.inline(conv(width, 3, 2, shape), x, name="conv1")
    main = net.inline(conv(width, 3, 1, net.shape(main)), main, name="conv2")
    side = net.inline(chain(shape, pool=AvgPool(2, 2), conv=Conv(width, 1)), x, name="shortcut")
    net.add(SUM, side, main, name="sum")
    return net.plan()


@lru_cache(maxsize=256)
def head(num_classes: int, shape: Shape) -> Plan:
    return chain(shape, norm=NORM, relu=RELU, pool=GlobalAvgPool(), linear=Linear(num_classes))


spaces.register("nb201", NB201())
