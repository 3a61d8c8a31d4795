"""The network as data: nodes in topological order, with static shapes and named parameters.

A space builds a plan in well under a millisecond, without tensors. Counts of parameters and multiply-accumulates,
drawings and printed code come from it, and the engine runs it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.norm import BatchNorm, Statistics
from epochzero.plan.ops.wiring import Identity
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
    """the shape of the output for one sample"""
    params: tuple[str, ...]
    """full names of its parameters and buffers, in the op's order; shared ones have the same name in both nodes"""


class Place(NamedTuple):
    """The place of a block in a skeleton."""

    inputs: tuple[int, ...]
    """indices of earlier pieces"""
    name: str
    shape: Shape
    """the shape of the block's output for one sample"""
    home: str
    """the name of the block whose parameters it uses: its own, unless it shares those of an earlier one"""


class Totals(NamedTuple):
    """The totals of a plan's nodes."""

    nodes: int
    """the number of nodes other than inputs"""
    flops: int
    params: int
    activations: int
    layers: int
    """convolutions and linear layers"""
    shared: int
    """nodes and blocks that use parameters of earlier ones"""


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A plan without the contents of its blocks; plans that differ only in those share one."""

    pieces: tuple[Node | Place, ...]
    """nodes and places of blocks, each after those that it reads, which are indices here"""
    weights: dict[str, Param]
    """parameters and buffers of the nodes"""
    flops: int
    """of the nodes, without an auxiliary tower, whether that is in nodes or in blocks"""

    def is_like(self, other: Skeleton) -> bool:
        return self is other or self.pieces == other.pieces

    @cached_property
    def places(self) -> tuple[Place, ...]:
        return tuple([piece for piece in self.pieces if isinstance(piece, Place)])

    @cached_property
    def ends(self) -> Ends:
        given = (piece for piece in self.pieces if isinstance(piece, Node) and piece.op.wiring == "input")
        return tuple([piece.shape for piece in given]), self.pieces[-1].shape

    @cached_property
    def block_ends(self) -> list[Ends]:
        """The input and output shapes of its blocks."""
        return [(tuple([self.pieces[i].shape for i in place.inputs]), place.shape) for place in self.places]

    @cached_property
    def borrowers(self) -> tuple[int, ...]:
        """The indices of the places whose blocks use the parameters of others."""
        return tuple([k for k, place in enumerate(self.places) if place.home != place.name])

    @cached_property
    def totals(self) -> Totals:
        """The totals of its nodes."""
        nodes = [piece for piece in self.pieces if isinstance(piece, Node)]
        names = [name for node in nodes for name in node.params]
        return Totals(
            nodes=len(nodes) - len(self.ends[0]),
            flops=self.flops,
            params=sum([param.numel for param in self.weights.values() if param.trainable]),
            activations=sum([math.prod(node.shape) for node in nodes]),
            layers=sum([node.op.kind in ("conv", "linear") for node in nodes]),
            shared=len(names) - len(set(names)) + len(self.borrowers),
        )


Ends = tuple[tuple[Shape, ...], Shape]
"""the input shapes of a plan, and its output shape"""


class Inlined(NamedTuple):
    """A whole plan as a block of a larger one."""

    block: Plan
    inputs: tuple[int, ...]
    name: str
    start: int
    """the index of its first node other than an input"""
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

    skeleton: Skeleton
    parts: tuple[Plan, ...] = ()
    """the blocks at the places of the skeleton; their nodes are copied when they are first needed"""
    auxiliary: int | None = None
    """a node whose value is a second output, in training alone"""
    _by_statistics: dict[Statistics, Plan] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<Plan of {len(self.nodes)} nodes, {self.params:,} parameters, {self.flops:,} multiply-accumulates>"

    def _repr_svg_(self) -> str:
        """The drawing, as wide as the page at most."""
        return self.svg().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)

    @staticmethod
    def of(nodes: Sequence[Node], flops: int, weights: dict[str, Param], auxiliary: int | None = None) -> Plan:
        """Returns a plan of these nodes, each after its inputs."""
        return Plan(Skeleton(tuple(nodes), weights, flops), (), auxiliary)

    def with_parts(self, parts: Sequence[Plan]) -> Plan:
        """Returns the same skeleton with other blocks of the same input and output shapes."""
        fit = [part.skeleton.ends for part in parts] == self.skeleton.block_ends
        if not fit or self.auxiliary is not None or any(part.auxiliary is not None for part in parts):
            raise ValueError("blocks that replace others need the same shapes, and no auxiliary output")
        return Plan(self.skeleton, tuple(parts))

    @cached_property
    def pieces(self) -> tuple[Node | Inlined, ...]:
        """Its nodes and blocks, with the indices that nodes have in the whole network."""
        if not self.parts:
            return self.skeleton.pieces  # type: ignore[return-value]
        pieces: list[Node | Inlined] = []
        last, parts = self.last_nodes, iter(self.parts)
        for piece, end in zip(self.skeleton.pieces, last, strict=True):
            inputs = tuple([last[i] for i in piece.inputs])
            if isinstance(piece, Place):
                block = next(parts)
                pieces.append(Inlined(block, inputs, piece.name, end + 1 - block.totals.nodes, piece.home))
            else:
                pieces.append(piece._replace(inputs=inputs))
        return tuple(pieces)

    @cached_property
    def last_nodes(self) -> tuple[int, ...]:
        """The index of the last node of each piece of the skeleton."""
        parts = iter(self.parts)
        sizes = (next(parts).totals.nodes if isinstance(piece, Place) else 1 for piece in self.skeleton.pieces)
        return tuple(itertools.accumulate(sizes, initial=-1))[1:]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, each after its inputs; the last is the output."""
        nodes: list[Node] = []
        for piece in self.pieces:
            if isinstance(piece, Inlined):
                nodes.extend(piece.nodes())
            else:
                nodes.append(piece)
        return tuple(nodes)

    @cached_property
    def weights(self) -> dict[str, Param]:
        """Every parameter and buffer once, by full name."""
        weights = dict(self.skeleton.weights)
        for (_, name, _, home), part in zip(self.skeleton.places, self.parts, strict=True):
            if home == name:
                weights.update({f"{name}.{own}": param for own, param in part.weights.items()})
        return weights

    @cached_property
    def totals(self) -> Totals:
        columns = zip(self.skeleton.totals, *[part.totals for part in self.parts], strict=True)
        totals = Totals(*map(sum, columns))
        borrowed = sum(self.parts[k].totals.params for k in self.skeleton.borrowers)
        return totals._replace(params=totals.params - borrowed) if borrowed else totals

    @property
    def flops(self) -> int:
        """Multiply-accumulates of one forward pass for one sample, without the auxiliary tower."""
        return self.totals.flops

    @property
    def params(self) -> int:
        """The number of trainable parameters."""
        return self.totals.params

    @property
    def shares(self) -> bool:
        """True where two of its nodes use the same parameter."""
        return self.totals.shared > 0

    @property
    def activations(self) -> int:
        """The number of values that the nodes compute for one sample."""
        return self.totals.activations

    @property
    def has_layers(self) -> bool:
        """True where there is a convolution or a linear layer."""
        return self.totals.layers > 0

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.totals.nodes + len(self.input_shapes)

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
        needed, waiting = {output}, [output]
        while waiting:
            new = set(self.nodes[waiting.pop()].inputs) - needed
            needed |= new
            waiting += new
        return needed

    @property
    def trunk(self) -> Plan:
        """The network without its auxiliary tower: what is evaluated and scored."""
        return self if self.auxiliary is None else self._trunk

    @cached_property
    def _trunk(self) -> Plan:
        kept = [i for i in range(len(self.nodes)) if i not in self.tower]
        place = {i: at for at, i in enumerate(kept)}
        nodes = tuple(
            node._replace(inputs=tuple(place[s] for s in node.inputs)) for node in (self.nodes[i] for i in kept)
        )
        return self._with_nodes(nodes)

    @cached_property
    def blocks(self) -> dict[str, tuple[int, ...]]:
        """The nodes of each block by its dotted name, of the whole network by an empty one; inputs are in no block."""
        blocks: dict[str, list[int]] = {"": []}
        for i, node in enumerate(self.nodes):
            if node.inputs:
                dots = (at for at, c in enumerate(node.name) if c == ".")
                for block in ("", *(node.name[:at] for at in dots)):
                    blocks.setdefault(block, []).append(i)
        return {block: tuple(nodes) for block, nodes in blocks.items()}

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """For each node, the nodes that read it."""
        readers: list[set[int]] = [set() for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for source in node.inputs:
                readers[source].add(i)
        return tuple(map(frozenset, readers))

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(self.nodes) if node.op.wiring == "input")

    @property
    def outputs(self) -> tuple[int, ...]:
        """The last node, and the auxiliary one where there is one."""
        return (len(self.nodes) - 1, *([] if self.auxiliary is None else [self.auxiliary]))

    @property
    def input_shape(self) -> Shape:
        return self.nodes[self.inputs[0]].shape

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        return self.skeleton.ends[0]

    @property
    def output_shape(self) -> Shape:
        return self.skeleton.ends[1]

    @cached_property
    def layer_weights(self) -> tuple[str, ...]:
        """The weights of convolutions and linear layers, each once, in the order of the network."""
        return tuple(dict.fromkeys(name for node in self.trunk.nodes for name in node.op.layer_weights(node.params)))

    @cached_property
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the values that are no longer needed after it has run."""
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
        nodes = [node._replace(op=skip, params=()) if isinstance(node.op, BatchNorm) else node for node in self.nodes]
        return self._with_nodes(nodes, self.auxiliary)

    def with_statistics(self, statistics: Statistics) -> Plan:
        """Returns the same network with batch norms that use these statistics."""
        if statistics not in self._by_statistics:
            nodes = [
                node._replace(op=replace(node.op, statistics=statistics)) if isinstance(node.op, BatchNorm) else node
                for node in self.nodes
            ]
            self._by_statistics[statistics] = self._with_nodes(nodes, self.auxiliary)
        return self._by_statistics[statistics]

    def _with_nodes(self, nodes: Sequence[Node], auxiliary: int | None = None) -> Plan:
        """Returns a plan of these nodes in place of its own, with the weights that they use."""
        used = {name for node in nodes for name in node.params}
        weights = {name: p for name, p in self.weights.items() if name in used}
        return Plan.of(nodes, self.flops, weights, auxiliary)

    def module(self, origin: Origin = Origin()) -> PlanModule:
        """Returns an ordinary `nn.Module` of this network, with weights drawn as the engine would draw them."""
        from epochzero.plan.module import PlanModule

        return PlanModule(self, origin)

    def code(self) -> str:
        """Returns stand-alone PyTorch source of this network: a class `Network` with the parameters of `module()`."""
        from epochzero.plan.printing.code import code

        return code(self)

    def svg(self, block: str = "") -> str:
        """Returns an SVG image of a block, or of the whole network."""
        from epochzero.plan.drawing.draw import svg

        return svg(self, block)

    def drawn(self, block: str = "") -> str:
        """Returns the drawing as lines of text for a terminal."""
        from epochzero.plan.drawing.draw import text

        return text(self, block)
