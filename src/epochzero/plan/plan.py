"""The network as data: nodes in topological order, with static shapes and named parameters.

A space builds a plan in well under a millisecond; no tensor is made. Parameter and multiply-accumulate
counts, drawings and printed code are read off it, and the engine runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.norm import BatchNorm, Statistics
from epochzero.plan.ops.wiring import Identity, Input
from epochzero.types import Origin, Shape

if TYPE_CHECKING:
    from epochzero.plan.module import PlanModule


class Node(NamedTuple):
    """One op at its place in the network."""

    op: Op
    inputs: tuple[int, ...]
    """indices of earlier nodes"""
    name: str
    """dotted path: `cell3.edge20.conv` is the conv of block `edge20` in block `cell3`"""
    shape: Shape
    """of the output for one sample"""
    params: tuple[str, ...]
    """full names of its parameters and buffers, in the op's order; two nodes that share one name it twice"""


class Facts(NamedTuple):
    """What an op says of itself for given input shapes."""

    shape: Shape
    params: dict[str, Param]
    macs: int


def _facts(op: Op, inputs: tuple[Shape, ...]) -> Facts:
    return _ask(op, inputs) if op.unique else _remembered(op, inputs)


def _ask(op: Op, inputs: tuple[Shape, ...]) -> Facts:
    return Facts(op.shape(*inputs), op.params(*inputs), op.macs(*inputs))


_remembered = lru_cache(maxsize=65536)(_ask)


class Inlined(NamedTuple):
    """A whole plan at its place as a block of a larger one; its nodes are copied when they are first needed."""

    block: Plan
    inputs: tuple[int, ...]
    name: str
    start: int
    """the index of its first node that is no input"""
    home: str
    """the name of the block whose parameters it uses: its own, unless it shares those of an earlier one"""

    def nodes(self) -> Iterator[Node]:
        prefix, bound, index = f"{self.name}.", iter(self.inputs), self.start
        place: list[int] = []
        for op, sources, label, shape, params in self.block.nodes:
            if not sources:
                place.append(next(bound))
                continue
            place.append(index)
            index += 1
            named = tuple([f"{self.home}.{param}" for param in params]) if params else ()
            yield Node(op, tuple([place[i] for i in sources]), prefix + label, shape, named)


@dataclass(frozen=True, eq=False)
class Plan:
    """A whole network, ready to be counted, drawn, printed or run."""

    pieces: tuple[Node | Inlined, ...]
    flops: int
    """multiply-accumulates of one forward pass for one sample, without the auxiliary tower"""
    direct_weights: dict[str, Param]
    """parameters and buffers of the pieces that are nodes"""
    auxiliary: int | None = None
    """a node whose value is a second output, in training alone"""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, each after its inputs; the last is the output."""
        found: list[Node] = []
        for piece in self.pieces:
            if isinstance(piece, Inlined):
                found.extend(piece.nodes())
            else:
                found.append(piece)
        return tuple(found)

    @cached_property
    def weights(self) -> dict[str, Param]:
        """Every parameter and buffer once, by full name."""
        found = dict(self.direct_weights)
        for piece in self.pieces:
            if isinstance(piece, Inlined) and piece.home == piece.name:
                found.update({f"{piece.name}.{name}": param for name, param in piece.block.weights.items()})
        return found

    @cached_property
    def params(self) -> int:
        """How many trainable numbers the network has."""
        direct = sum(param.numel for param in self.direct_weights.values() if param.trainable)
        blocks = (p for p in self.pieces if isinstance(p, Inlined) and p.home == p.name)
        return direct + sum(piece.block.params for piece in blocks)

    @cached_property
    def shares(self) -> bool:
        """Whether two of its nodes use the same parameter."""
        blocks = (piece for piece in self.pieces if isinstance(piece, Inlined))
        if any(piece.home != piece.name or piece.block.shares for piece in blocks):
            return True
        direct = [name for piece in self.pieces if isinstance(piece, Node) for name in piece.params]
        return len(set(direct)) < len(direct)

    @cached_property
    def tower(self) -> frozenset[int]:
        """The nodes that run for the auxiliary output alone."""
        if self.auxiliary is None:
            return frozenset()
        side = self._needed(self.auxiliary) - self._needed(len(self.nodes) - 1)
        for i, node in enumerate(self.nodes):
            if not side.isdisjoint(node.inputs):
                side.add(i)
        return frozenset(side)

    def _needed(self, output: int) -> set[int]:
        found, waiting = {output}, [output]
        while waiting:
            new = set(self.nodes[waiting.pop()].inputs) - found
            found |= new
            waiting += new
        return found

    @cached_property
    def trunk(self) -> Plan:
        """The network without its auxiliary tower: what is evaluated and scored."""
        if self.auxiliary is None:
            return self
        kept = [i for i in range(len(self.nodes)) if i not in self.tower]
        place = {i: at for at, i in enumerate(kept)}
        nodes = tuple(
            node._replace(inputs=tuple(place[s] for s in node.inputs)) for node in (self.nodes[i] for i in kept)
        )
        used = {name for node in nodes for name in node.params}
        return Plan(nodes, self.flops, {name: p for name, p in self.weights.items() if name in used})

    @cached_property
    def blocks(self) -> dict[str, tuple[int, ...]]:
        """The nodes of each block by its dotted name, of the whole network by none; inputs belong to no block."""
        found: dict[str, list[int]] = {"": []}
        for i, node in enumerate(self.nodes):
            if node.inputs:
                dots = (at for at, c in enumerate(node.name) if c == ".")
                for block in ("", *(node.name[:at] for at in dots)):
                    found.setdefault(block, []).append(i)
        return {block: tuple(nodes) for block, nodes in found.items()}

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """For each node, those that read it."""
        found: list[set[int]] = [set() for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in node.inputs:
                found[source].add(i)
        return tuple(map(frozenset, found))

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Input))

    @property
    def outputs(self) -> tuple[int, ...]:
        """The last node, and the auxiliary one where there is one."""
        return (len(self.nodes) - 1, *([] if self.auxiliary is None else [self.auxiliary]))

    @property
    def input_shape(self) -> Shape:
        return self.nodes[self.inputs[0]].shape

    @cached_property
    def input_shapes(self) -> tuple[Shape, ...]:
        return tuple(p.shape for p in self.pieces if isinstance(p, Node) and isinstance(p.op, Input))

    @cached_property
    def output_shape(self) -> Shape:
        last = self.pieces[-1]
        return last.block.output_shape if isinstance(last, Inlined) else last.shape

    @cached_property
    def size(self) -> int:
        """How many nodes there are."""
        return sum(p.block.size - len(p.inputs) if isinstance(p, Inlined) else 1 for p in self.pieces)

    @cached_property
    def layer_weights(self) -> tuple[str, ...]:
        """The weights of convolutions and linear layers, each once, in the order of the network."""
        named = (node.params[0] for node in self.trunk.nodes if node.op.kind in ("conv", "linear"))
        return tuple(dict.fromkeys(named))

    @cached_property
    def activations(self) -> int:
        """How many numbers the nodes give for one sample."""
        return sum(p.block.activations if isinstance(p, Inlined) else math.prod(p.shape) for p in self.pieces)

    @cached_property
    def has_layers(self) -> bool:
        """Whether there is a convolution or a linear layer."""
        blocks = (piece.block.has_layers if isinstance(piece, Inlined) else False for piece in self.pieces)
        return any(blocks) or any(isinstance(p, Node) and p.op.kind in ("conv", "linear") for p in self.pieces)

    @cached_property
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each node, which values nobody needs after it has run."""
        last = {source: i for i, node in enumerate(self.nodes) for source in node.inputs}
        released: list[list[int]] = [[] for _ in self.nodes]
        for source, user in last.items():
            if source != self.auxiliary:
                released[user].append(source)
        return tuple(tuple(sources) for sources in released)

    @cached_property
    def without_norms(self) -> Plan:
        """The same network with every batch norm replaced by the identity, and without its parameters."""
        skip = Identity()

        def drop(node: Node) -> Node:
            return node._replace(op=skip, params=()) if isinstance(node.op, BatchNorm) else node

        return self._mapped(drop)

    @cached_property
    def _by_statistics(self) -> dict[Statistics, Plan]:
        return {}

    def with_statistics(self, statistics: Statistics) -> Plan:
        """The same network with every batch norm reading its mean and variance from there."""
        if statistics not in self._by_statistics:

            def switch(node: Node) -> Node:
                if not isinstance(node.op, BatchNorm) or node.op.statistics == statistics:
                    return node
                return node._replace(op=replace(node.op, statistics=statistics))

            self._by_statistics[statistics] = self._mapped(switch)
        return self._by_statistics[statistics]

    def _mapped(self, change: Callable[[Node], Node]) -> Plan:
        nodes = tuple(change(node) for node in self.nodes)
        used = {name for node in nodes for name in node.params}
        weights = {name: p for name, p in self.weights.items() if name in used}
        return Plan(nodes, self.flops, weights, self.auxiliary)

    def module(self, origin: Origin = Origin()) -> PlanModule:
        """An ordinary `nn.Module` of this network, with weights drawn as the engine would draw them."""
        from epochzero.plan.module import PlanModule

        return PlanModule(self, origin)

    def code(self) -> str:
        """Stand-alone PyTorch source of this network: a class `Network` with the parameters of `module()`."""
        from epochzero.plan.codegen import code

        return code(self)

    def svg(self, block: str = "") -> str:
        """An SVG image of a block, or of the whole network."""
        from epochzero.plan.draw import svg

        return svg(self, block)

    def drawn(self, block: str = "") -> str:
        """The same as lines of text for a terminal."""
        from epochzero.plan.draw import text

        return text(self, block)


class Builder:
    """Collects nodes and infers shapes as they come."""

    def __init__(self) -> None:
        self._pieces: list[Node | Inlined] = []
        self._shapes: dict[int, Shape] = {}
        self._weights: dict[str, Param] = {}
        self._flops = 0
        self._size = 0

    def input(self, shape: Shape, name: str = "input") -> int:
        return self.add(Input(shape), name=name)

    def add(self, op: Op, *inputs: int, name: str, shares: str | None = None) -> int:
        """Append a node and return its index. With `shares`, it uses the parameters of the node of that name."""
        facts = _facts(op, tuple([self._shapes[i] for i in inputs]))
        named = tuple([f"{shares or name}.{attribute}" for attribute in facts.params])
        for full, param in zip(named, facts.params.values(), strict=True):
            if shares is None:
                if full in self._weights:
                    raise ValueError(f"two nodes of the plan are called {name!r}")
                self._weights[full] = param
            elif self._weights.get(full) != param:
                raise ValueError(f"{name!r} cannot share {full!r}: there is none of that shape in this plan")
        self._flops += facts.macs
        self._pieces.append(Node(op, inputs, name, facts.shape, named))
        return self._grown(1, facts.shape)

    def inline(self, block: Plan, *inputs: int, name: str, shares: str | None = None) -> int:
        """Append a whole plan as the block `name`, its inputs bound to these nodes; returns its output's index.

        A block that comes many times is planned once, and copied only when the network is run or drawn. With
        `shares`, it uses the parameters of the block of that name: a siamese network.
        """
        given = tuple([self._shapes[i] for i in inputs])
        if given != block.input_shapes:
            raise ValueError(f"the block {name!r} takes inputs of shapes {block.input_shapes}, not {given}")
        if block.auxiliary is not None:
            raise ValueError(f"the block {name!r} has an auxiliary output of its own, which only a whole network can")
        if shares is not None:
            owners = (p for p in self._pieces if isinstance(p, Inlined) and p.name == p.home == shares)
            if not any(p.block is block or p.block.weights == block.weights for p in owners):
                raise ValueError(f"the block {name!r} cannot share the parameters of {shares!r}: none here is like it")
        self._pieces.append(Inlined(block, inputs, name, self._size, shares or name))
        self._flops += block.flops
        return self._grown(block.size - len(given), block.output_shape)

    def _grown(self, nodes: int, shape: Shape) -> int:
        self._size += nodes
        self._shapes[self._size - 1] = shape
        return self._size - 1

    def shape(self, index: int) -> Shape:
        return self._shapes[index]

    def plan(self, auxiliary: int | None = None) -> Plan:
        """The finished plan; the node added last is its output.

        `auxiliary` is a node whose value `module()` gives beside the output in training. What leads to it alone, the
        auxiliary tower, is part of `params` and not of `flops`, and never scored.
        """
        whole = Plan(tuple(self._pieces), self._flops, self._weights, auxiliary)
        if auxiliary is None:
            return whole
        if auxiliary not in self._shapes or auxiliary == self._size - 1:
            raise ValueError(f"node {auxiliary} cannot be the auxiliary output: it has to be there, and not the last")
        nodes = whole.nodes
        aside = sum(_facts(nodes[i].op, tuple(nodes[s].shape for s in nodes[i].inputs)).macs for i in whole.tower)
        return replace(whole, flops=self._flops - aside)


def chain(shape: Shape, **ops: Op) -> Plan:
    """One op after the other, each under its name."""
    net = Builder()
    x = net.input(shape)
    for name, op in ops.items():
        x = net.add(op, x, name=name)
    return net.plan()
