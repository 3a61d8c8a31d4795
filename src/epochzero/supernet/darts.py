"""DARTS as one network, in two forms.

NASI: a node is one of seven operations on one of the nodes before it, drawn independently. A reduction cell has stride
1 like the others, with max pooling before it. The two best operations and the two best inputs of a node are kept and
paired by rank (the paper does not state the pairing).

Zero-Cost-PT: the supernet of DARTS itself, all operations on all edges from each node to each later one, of which two
remain at every node. Neither has the operation `none`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.pool import MaxPool
from epochzero.spaces.base import check_classes, pooled_classifier
from epochzero.spaces.darts import (
    ALL_NODES,
    BARE_NORM,
    JOIN,
    SUM,
    Darts,
    edge_block,
    prepared,
    projected,
    reductions,
    stem_block,
)
from epochzero.spaces.genotypes import SEARCHED, Genotype, in_order
from epochzero.spaces.genotypes import Cell as Edges
from epochzero.supernet.relaxed import MIXTURE, Choice, Picks, Relaxed, Supernet, Weights, mix, relax, supernet
from epochzero.types import Shape

KINDS = ("normal", "reduce")
CELLS = 8
STEM = 3
"""channels of the stem per channel of a cell"""
HALVE = MaxPool(2, 2)
SIZES = {f"{field}{node}": size for node in ALL_NODES for field, size in (("op", len(SEARCHED)), ("from", node))}
"""number of options of each choice of a cell"""


def check(space: Darts, num_classes: int, shape: Shape, cells: int) -> None:
    check_classes(space.name, num_classes)
    if cells in (1, 2):
        raise UserError(f"A search in {space.name} takes at least 3 cells: {cells} would all be reduction cells.")
    if len(shape) != 3 or min(shape[1:]) < 4:
        given = shape_text(shape)
        raise UserError(f"A search in {space.name} takes images CxHxW of at least 4x4, such as 3x32x32, not {given}.")


@relax.register
def _relaxed(space: Darts, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Relaxed:
    check(space, num_classes, input_shape, cells)
    cells = cells or CELLS
    net = Builder()
    image = net.input(input_shape)
    weights = {kind: [net.input((size,), f"{kind}_{name}") for name, size in SIZES.items()] for kind in KINDS}
    before = last = net.inline(stem_block(STEM * channels, input_shape), image, name="stem")
    width = channels
    for i in range(cells):
        reduces = i in reductions(cells)
        if reduces:
            width *= 2
            same = before == last
            before = net.add(HALVE, before, name=f"halve{i}_before")
            last = before if same else net.add(HALVE, last, name=f"halve{i}_last")
        cell = _drawn_cell(width, net.shape(before), net.shape(last))
        before, last = last, net.inline(cell, before, last, *weights[KINDS[reduces]], name=f"cell{i}")
    net.inline(pooled_classifier(num_classes, net.shape(last)), last, name="head")
    choices = [_choice(kind, name, size) for kind in KINDS for name, size in SIZES.items()]
    return Relaxed(net.plan(), tuple(choices), _paired)


def _choice(kind: str, name: str, size: int) -> Choice:
    options = SEARCHED if name.startswith("op") else tuple(map(str, range(size)))
    return Choice(f"{kind}_{name}", options, picks=2)


def _paired(picks: Picks) -> Genotype:
    def cell(kind: str) -> Edges:
        edges = (
            (SEARCHED[op], source)
            for node in ALL_NODES
            for op, source in zip(picks[f"{kind}_op{node}"], picks[f"{kind}_from{node}"], strict=True)
        )
        return in_order(tuple(edges))

    return Genotype(cell("normal"), ALL_NODES, cell("reduce"), ALL_NODES)


@lru_cache(maxsize=64)
def _drawn_cell(width: int, before: Shape, last: Shape) -> Plan:
    net = Builder()
    inputs = net.input(before, "before"), net.input(last, "last")
    weights = {name: net.input((size,), name) for name, size in SIZES.items()}
    nodes = [net.inline(projected(width, BARE_NORM, net.shape(x)), x, name=f"pre{i}") for i, x in enumerate(inputs)]
    for node in ALL_NODES:
        x = net.add(MIXTURE, weights[f"from{node}"], *nodes, name=f"node{node}.input")
        blocks = {op: edge_block(op, 1, True, net.shape(x)) for op in SEARCHED}
        nodes.append(mix(net, blocks, x, weights[f"op{node}"], f"node{node}"))
    net.add(JOIN, *nodes[2:], name="out")
    return net.plan()


EDGES = {
    kind: {f"{kind}_{node}_{source}": (node, source) for node in ALL_NODES for source in range(node)} for kind in KINDS
}


@supernet.register
def _supernet(space: Darts, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Supernet:
    check(space, num_classes, input_shape, cells)
    alone = Darts("darts_search", channels, cells or CELLS)

    def weighted(weights: Weights) -> Plan:
        return _weighted(weights, num_classes, input_shape, channels, cells or CELLS)

    crowded = {
        kind: tuple(tuple(f"{kind}_{node}_{source}" for source in range(node)) for node in ALL_NODES if node > 2)
        for kind in KINDS
    }
    kept = {kind: tuple(EDGES[kind]) for kind in KINDS}
    return Supernet(
        SEARCHED, kept, crowded, weighted, _genotype, lambda arch: alone.plan(arch, num_classes, input_shape)
    )


def _genotype(decided: Mapping[str, str]) -> Genotype:
    cells = [tuple((decided[e], source) for e, (_, source) in EDGES[kind].items() if e in decided) for kind in KINDS]
    return Genotype(cells[0], ALL_NODES, cells[1], ALL_NODES)


def _weighted(weights: Weights, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Plan:
    of_kind = [tuple(weights[edge] for edge in EDGES[kind]) for kind in KINDS]
    net = Builder()
    before = last = net.inline(stem_block(STEM * channels, input_shape), net.input(input_shape), name="stem")
    width, reduced = channels, False
    for i in range(cells):
        reduces = i in reductions(cells)
        width *= 2 if reduces else 1
        cell = _weighted_cell(of_kind[reduces], width, reduces, reduced, net.shape(before), net.shape(last))
        before, last, reduced = last, net.inline(cell, before, last, name=f"cell{i}"), reduces
    net.inline(pooled_classifier(num_classes, net.shape(last)), last, name="head")
    return net.plan()


@lru_cache(maxsize=64)
def _weighted_cell(
    weights: tuple[tuple[float, ...], ...], width: int, reduces: bool, reduced: bool, before: Shape, last: Shape
) -> Plan:
    net = Builder()
    inputs = net.input(before, "before"), net.input(last, "last")
    nodes = prepared(net, *inputs, width, BARE_NORM, reduced)
    given = iter(weights)
    for node in ALL_NODES:
        terms = []
        for source, of_edge in enumerate(islice(given, node)):
            if any(of_edge):
                stride = 2 if reduces and source < 2 else 1
                blocks = {op: edge_block(op, stride, True, net.shape(nodes[source])) for op in SEARCHED}
                terms.append(mix(net, blocks, nodes[source], of_edge, f"edge{node}_{source}"))
        nodes.append(net.add(SUM, *terms, name=f"node{node}"))
    net.add(JOIN, *nodes[2:], name="out")
    return net.plan()
