r"""DARTS with shared weights: two distinct inputs for each node, and an operation for every edge.

A node chooses which two earlier nodes it reads, with equal probability for all pairs, and every edge chooses one of
seven operations; the choice of an unread edge does not matter. So a uniform draw of all decisions is a uniform draw of
architectures. Node 2 has only one pair to read, and no choice.

With partial channels K, an operation sees the first 1/K of the channels; the rest skip it, through max pooling if it
halves the image, and a shuffle mixes both for the next edge:

    y = shuffle_K( concat( op(x[:C/K]), x[C/K:] ) )

Xu, Xie, Zhang, Chen, Qi, Tian, Xiong. PC-DARTS: partial channel connections for memory-efficient architecture search.
ICLR 2020. arXiv:1907.05737
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import torch
from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.wiring import Narrow
from epochzero.spaces.base import pooled_classifier
from epochzero.spaces.darts import ALL_NODES, JOIN, NORM, SUM, Darts, edge_block, prepared, reductions, stem_block
from epochzero.spaces.genotypes import SEARCHED, Genotype, in_order
from epochzero.spaces.genotypes import Cell as Edges
from epochzero.supernet.darts import CELLS, KINDS, STEM, check
from epochzero.supernet.relaxed import MIXTURE, Choice, mix
from epochzero.supernet.single_path import Decision, Picks, SinglePath, own_name, shared
from epochzero.types import Shape

PAIRS = {node: tuple(combinations(range(node), 2)) for node in ALL_NODES}
DECIDING = tuple(node for node in ALL_NODES if len(PAIRS[node]) > 1)
EDGES = tuple((node, source) for node in ALL_NODES for source in range(node))
SIZES = {f"op{node}_{source}": len(SEARCHED) for node, source in EDGES} | {f"from{node}": node for node in DECIDING}
"""length of each input vector of a cell's plan"""


def rejoined(x: Tensor, part: Tensor, groups: int, stride: int) -> Tensor:
    """Concatenates processed channels with the rest of x, halved the same way, and shuffles the groups."""
    rest = x[:, x.shape[1] // groups :]
    if stride > 1:
        rest = nn.functional.max_pool2d(rest, stride, ceil_mode=True)
    both = torch.cat([part, rest], 1)  # [B, C, H, W]
    return torch.stack(both.chunk(groups, 1), 2).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class Rejoin(Op):
    """Joins the result of an operation on 1/K of the channels (second input) with the rest of the first input."""

    groups: int
    stride: int = 1

    prints = (rejoined,)

    def shape(self, *inputs: Shape) -> Shape:
        whole, part = inputs
        return (part[0] + whole[0] - whole[0] // self.groups, *part[1:])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return rejoined(x[0], x[1], self.groups, self.stride)

    def label(self) -> str:
        return "shuffle"

    def expression(self, *names: str) -> str:
        return f"rejoined({', '.join(names)}, {self.groups}, {self.stride})"


@shared.register
def _darts(
    space: Darts, num_classes: int, input_shape: Shape, channels: int = 16, cells: int = 0, partial: int = 1
) -> SinglePath:
    check(space, num_classes, input_shape, cells)
    if space.imagenet:
        raise UserError(f"Weights are shared in networks for small images: use darts in place of {space.name}.")
    if partial < 1 or channels % (2 * partial):
        raise UserError(f"Partial channels 1/{partial} need a multiple of {2 * partial} channels, not {channels}.")
    sized = replace(space, name="darts_shared", channels=channels, cells=cells or CELLS)
    decisions = tuple(_decision(kind, name, size) for kind in KINDS for name, size in SIZES.items())
    names = [decision.name for decision in decisions]

    def decode(picks: Picks) -> Genotype:
        chosen = dict(zip(names, picks, strict=True))
        normal, reduce = (_cell_of(kind, chosen) for kind in KINDS)
        return Genotype(normal, ALL_NODES, reduce, ALL_NODES)

    def encode(arch: Genotype) -> Picks:
        chosen = dict.fromkeys(names, 0) | _picked("normal", arch.normal) | _picked("reduce", arch.reduce)
        return tuple(chosen[name] for name in names)

    def alone(arch: Genotype) -> Plan:
        return sized.plan(arch, num_classes, input_shape) if partial == 1 else _own(network.path(encode(arch), "batch"))

    facts = {"space": space.name, "classes": num_classes, "channels": channels, "cells": sized.cells}
    plan = _network(sized, num_classes, input_shape, partial)
    network = SinglePath(plan, decisions, decode, encode, alone, facts | {"partial": partial})
    return network


def _decision(kind: str, name: str, size: int) -> Decision:
    if name.startswith("op"):
        return Decision.one_of(Choice(f"{kind}_{name}", SEARCHED))
    vectors = tuple(tuple(float(source in pair) for source in range(size)) for pair in PAIRS[size])
    return Decision(f"{kind}_{name}", tuple(f"{one}+{other}" for one, other in PAIRS[size]), vectors)


def _cell_of(kind: str, chosen: dict[str, int]) -> Edges:
    return tuple(
        (SEARCHED[chosen[f"{kind}_op{node}_{source}"]], source)
        for node in ALL_NODES
        for source in PAIRS[node][chosen.get(f"{kind}_from{node}", 0)]
    )


def _picked(kind: str, cell: Edges) -> dict[str, int]:
    """Returns the decisions of a cell; UserError for one outside the searched space."""
    edges, decisions = in_order(cell), dict[str, int]()
    for node, pair in zip(ALL_NODES, zip(edges[::2], edges[1::2], strict=True), strict=False):
        sources = tuple(source for _, source in pair)
        if sources not in PAIRS[node] or any(op not in SEARCHED for op, _ in pair):
            raise UserError(
                f"Node {node} of this {kind} cell is outside the searched space: two of {', '.join(SEARCHED)}."
            )
        decisions |= {f"{kind}_op{node}_{source}": SEARCHED.index(op) for op, source in pair}
        if node in DECIDING:
            decisions[f"{kind}_from{node}"] = PAIRS[node].index(sources)
    if len(edges) != 2 * len(ALL_NODES):
        raise UserError(f"A searched {kind} cell has {len(ALL_NODES)} nodes, not {len(edges) // 2}.")
    return decisions


def _network(space: Darts, num_classes: int, input_shape: Shape, partial: int) -> Plan:
    """The skeleton of the space with all edges and all operations."""
    net = Builder()
    image = net.input(input_shape)
    weights = {kind: [net.input((size,), f"{kind}_{name}") for name, size in SIZES.items()] for kind in KINDS}
    before = last = net.inline(stem_block(STEM * space.channels, input_shape), image, name="stem")
    width, reduced = space.channels, False
    for i in range(space.cells):
        reduces = i in reductions(space.cells)
        width *= 2 if reduces else 1
        shapes = net.shape(before), net.shape(last)
        cell = _cell(width, reduces, reduced, space.search_edges, partial, *shapes)
        before, last, reduced = last, net.inline(cell, before, last, *weights[KINDS[reduces]], name=f"cell{i}"), reduces
    net.inline(pooled_classifier(num_classes, net.shape(last)), last, name="head")
    return net.plan()


@lru_cache(maxsize=64)
def _cell(
    width: int, reduces: bool, reduced: bool, search_edges: bool, partial: int, before: Shape, last: Shape
) -> Plan:
    net = Builder()
    inputs = net.input(before, "before"), net.input(last, "last")
    weights = {name: net.input((size,), name) for name, size in SIZES.items()}
    nodes = prepared(net, *inputs, width, NORM, reduced)
    for node in ALL_NODES:
        edges = []
        for source, x in enumerate(nodes):
            stride, name = 2 if reduces and source < 2 else 1, f"edge{node}_{source}"
            edges.append(_edge(net, x, weights[f"op{node}_{source}"], stride, search_edges, partial, name))
        if node in DECIDING:
            nodes.append(net.add(MIXTURE, weights[f"from{node}"], *edges, name=f"node{node}"))
        else:
            nodes.append(net.add(SUM, *edges, name=f"node{node}"))
    net.add(JOIN, *nodes[2:], name="out")
    return net.plan()


def _edge(net: Builder, x: int, weights: int, stride: int, search_edges: bool, partial: int, name: str) -> int:
    """All operations on one edge."""
    part = x if partial == 1 else net.add(Narrow(net.shape(x)[0] // partial), x, name=f"{name}.first")
    blocks = {op: edge_block(op, stride, search_edges, net.shape(part)) for op in SEARCHED}
    mixed = mix(net, blocks, part, weights, name)
    return mixed if partial == 1 else net.add(Rejoin(partial, stride), x, mixed, name=f"{name}.join")


def _own(path: Plan) -> Plan:
    """Returns the network with its weights named as in a stand-alone network."""
    nodes = tuple(
        node._replace(name=own_name(node.name), params=tuple(map(own_name, node.params))) for node in path.nodes
    )
    return Plan.of(nodes, path.flops, {own_name(name): param for name, param in path.weights.items()})
