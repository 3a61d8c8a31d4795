"""Building a plan op by op and block by block."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.wiring import Input
from epochzero.plan.plan import Node, Place, Plan, Skeleton
from epochzero.types import Shape


class Facts(NamedTuple):
    """Shape, parameters and cost of an op for given input shapes."""

    shape: Shape
    params: dict[str, Param]
    macs: int


def _facts(op: Op, inputs: tuple[Shape, ...]) -> Facts:
    return Facts(op.shape(*inputs), op.params(*inputs), op.macs(*inputs))


_remembered = lru_cache(maxsize=65536)(_facts)


class Builder:
    """Collects nodes and blocks and infers their shapes; each gets a number, by which later ones refer to it."""

    def __init__(self) -> None:
        self._pieces: list[Node | Place] = []
        self._parts: list[Plan] = []
        self._weights: dict[str, Param] = {}
        self._flops = 0

    def input(self, shape: Shape, name: str = "input") -> int:
        return self.add(Input(shape), name=name)

    def add(self, op: Op, *inputs: int, name: str, shares: str | None = None) -> int:
        """Appends a node and returns its number. With `shares`, it uses the parameters of the node of that name."""
        facts = (_facts if op.unique else _remembered)(op, tuple([self._pieces[i].shape for i in inputs]))
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
        return len(self._pieces) - 1

    def inline(self, block: Plan, *inputs: int, name: str, shares: str | None = None) -> int:
        """Appends a whole plan as the block `name`, its inputs bound to these; returns its number.

        A block that is repeated is planned once, and copied only when the network is run or drawn. With
        `shares`, it uses the parameters of the block of that name: a siamese network.
        """
        given = tuple([self._pieces[i].shape for i in inputs])
        takes, gives = block.skeleton.ends
        if given != takes:
            raise ValueError(f"the block {name!r} takes inputs of shapes {takes}, not {given}")
        if block.auxiliary is not None:
            raise ValueError(f"the block {name!r} has an auxiliary output of its own, which only a whole network can")
        if shares is not None and not self._has_like(block, shares):
            raise ValueError(f"the block {name!r} cannot share the parameters of {shares!r}: none here is like it")
        self._parts.append(block)
        self._pieces.append(Place(inputs, name, gives, shares or name))
        return len(self._pieces) - 1

    def _has_like(self, block: Plan, name: str) -> bool:
        places = (piece for piece in self._pieces if isinstance(piece, Place))
        owners = (p for place, p in zip(places, self._parts, strict=True) if place.name == place.home == name)
        return any(p is block or p.weights == block.weights for p in owners)

    def shape(self, index: int) -> Shape:
        return self._pieces[index].shape

    def plan(self, auxiliary: int | None = None) -> Plan:
        """Returns the finished plan; the node added last is its output.

        `auxiliary` is a second output of `module()` in training. The auxiliary tower, the nodes that lead to it alone,
        counts in `params` and not in `flops`, and is never scored.
        """
        whole = Plan(Skeleton(tuple(self._pieces), self._weights, self._flops), tuple(self._parts))
        if auxiliary is None:
            return whole
        if not 0 <= auxiliary < len(self._pieces) - 1:
            raise ValueError(f"node {auxiliary} cannot be the auxiliary output: it has to be there, and not the last")
        whole = replace(whole, auxiliary=whole.last_nodes[auxiliary])
        nodes = whole.nodes
        tower = sum(_facts(nodes[i].op, tuple(nodes[s].shape for s in nodes[i].inputs)).macs for i in whole.tower)
        return replace(whole, skeleton=replace(whole.skeleton, flops=self._flops - tower))


def chain(shape: Shape, **ops: Op) -> Plan:
    """Returns the plan of one op after the other, each under its name."""
    net = Builder()
    x = net.input(shape)
    for name, op in ops.items():
        x = net.add(op, x, name=name)
    return net.plan()
