"""How a plan comes about: op by op, and block by block."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.wiring import Input
from epochzero.plan.plan import Node, Place, Plan, Skeleton
from epochzero.types import Shape


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


class Builder:
    """Collects nodes and infers shapes as they come."""

    def __init__(self) -> None:
        self._pieces: list[Node | Place] = []
        self._parts: list[Plan] = []
        self._givers: dict[int, int] = {}
        """for each node that can be read, its piece"""
        self._weights: dict[str, Param] = {}
        self._flops = 0
        self._size = 0

    def input(self, shape: Shape, name: str = "input") -> int:
        return self.add(Input(shape), name=name)

    def add(self, op: Op, *inputs: int, name: str, shares: str | None = None) -> int:
        """Append a node and return its index. With `shares`, it uses the parameters of the node of that name."""
        sources = tuple([self._givers[i] for i in inputs])
        facts = _facts(op, tuple([self._pieces[i].shape for i in sources]))
        named = tuple([f"{shares or name}.{attribute}" for attribute in facts.params])
        for full, param in zip(named, facts.params.values(), strict=True):
            if shares is None:
                if full in self._weights:
                    raise ValueError(f"two nodes of the plan are called {name!r}")
                self._weights[full] = param
            elif self._weights.get(full) != param:
                raise ValueError(f"{name!r} cannot share {full!r}: there is none of that shape in this plan")
        self._flops += facts.macs
        return self._grown(Node(op, sources, name, facts.shape, named), 1)

    def inline(self, block: Plan, *inputs: int, name: str, shares: str | None = None) -> int:
        """Append a whole plan as the block `name`, its inputs bound to these nodes; returns its output's index.

        A block that comes many times is planned once, and copied only when the network is run or drawn. With
        `shares`, it uses the parameters of the block of that name: a siamese network.
        """
        sources = tuple([self._givers[i] for i in inputs])
        given = tuple([self._pieces[i].shape for i in sources])
        if given != block.input_shapes:
            raise ValueError(f"the block {name!r} takes inputs of shapes {block.input_shapes}, not {given}")
        if block.auxiliary is not None:
            raise ValueError(f"the block {name!r} has an auxiliary output of its own, which only a whole network can")
        if shares is not None and not self._has_like(block, shares):
            raise ValueError(f"the block {name!r} cannot share the parameters of {shares!r}: none here is like it")
        self._parts.append(block)
        return self._grown(Place(sources, name, block.output_shape, shares or name), block.totals.nodes)

    def _has_like(self, block: Plan, name: str) -> bool:
        places = (piece for piece in self._pieces if isinstance(piece, Place))
        owners = (p for place, p in zip(places, self._parts, strict=True) if place.name == place.home == name)
        return any(p is block or p.weights == block.weights for p in owners)

    def _grown(self, piece: Node | Place, nodes: int) -> int:
        self._size += nodes
        self._givers[self._size - 1] = len(self._pieces)
        self._pieces.append(piece)
        return self._size - 1

    def shape(self, index: int) -> Shape:
        return self._pieces[self._givers[index]].shape

    def plan(self, auxiliary: int | None = None) -> Plan:
        """The finished plan; the node added last is its output.

        `auxiliary` is a node whose value `module()` gives beside the output in training. What leads to it alone, the
        auxiliary tower, is part of `params` and not of `flops`, and never scored.
        """
        skeleton = Skeleton(tuple(self._pieces), self._weights, self._flops)
        whole = Plan(skeleton, tuple(self._parts), auxiliary)
        if auxiliary is None:
            return whole
        if auxiliary not in self._givers or auxiliary == self._size - 1:
            raise ValueError(f"node {auxiliary} cannot be the auxiliary output: it has to be there, and not the last")
        nodes = whole.nodes
        aside = sum(_facts(nodes[i].op, tuple(nodes[s].shape for s in nodes[i].inputs)).macs for i in whole.tower)
        return Plan(Skeleton(skeleton.pieces, self._weights, self._flops - aside), whole.parts, auxiliary)


def chain(shape: Shape, **ops: Op) -> Plan:
    """One op after the other, each under its name."""
    net = Builder()
    x = net.input(shape)
    for name, op in ops.items():
        x = net.add(op, x, name=name)
    return net.plan()
