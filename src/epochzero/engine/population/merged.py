"""What many networks that run side by side are as one plan; `epochzero.engine.population.merge` makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.engine.population.grouped_ops import grouped
from epochzero.plan.builder import Builder
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.wiring import Input, Zero
from epochzero.plan.plan import Node, Plan, Skeleton
from epochzero.types import Shape

Numbers = NDArray[np.int64]


class Members(NamedTuple):
    """The layers that a merged node runs, one entry each."""

    networks: Numbers
    orders: Numbers
    """sorts the layers of a network as the network has them"""
    slots: Numbers
    """its output is this map of the merged node's, and so are its inputs of the merged node's inputs"""


@dataclass(frozen=True, slots=True)
class Pack:
    """The (network, name) of parameters that are joined along the first axis."""

    networks: Sequence[int]
    names: Sequence[str]
    inside: str = ""
    """what comes before each name"""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self.networks, map(self.inside.__add__, self.names), strict=True)


Packs = dict[str, Pack]
"""for each parameter of a merged plan, those that it joins"""


@dataclass(frozen=True)
class Merged:
    """A plan that runs several networks; its last node holds their outputs side by side."""

    plan: Plan
    size: int
    """how many networks"""
    packs: Packs
    find_members: Callable[[], dict[str, Members]]
    maps: dict[str, int]
    """for each node of the plan, how many networks' maps its output holds"""
    blocks: tuple[str, ...] | None = None
    """the networks' blocks, each ending with all networks side by side; None where they have none in common"""
    parts: tuple[tuple[str, Merged], ...] = ()
    """what it was put together from: the names and networks' parts, each ending with all networks side by side"""
    made_of: tuple[Op | None, ...] = ()
    """for each node of a part the op of one network that it runs; None for those that bring maps together"""
    routines: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """of a part, what `epochzero.engine.gpu.block_run` works out once"""

    @cached_property
    def members(self) -> dict[str, Members]:
        """For each node of the plan that is a layer, whose it is; found when layers are first watched."""
        return self.find_members()


def resized(plans: tuple[Plan, ...], others: tuple[Plan, ...], merged: Merged) -> Merged | None:
    """The plans merged as others were that differ from them in sizes alone, node by node; None where they do not.

    A cell that comes again with more channels is merged by the same steps, and keeps the same tables.
    """
    sizes = _sizes(plans, others)
    if sizes is None:
        return None
    net = Builder()
    for node, own in zip(merged.plan.nodes, merged.made_of, strict=True):
        op = _resized(node, own, merged.maps[node.name], sizes, [net.shape(source) for source in node.inputs])
        if op is None:
            return None
        net.add(op, *node.inputs, name=node.name)
    return replace(merged, plan=net.plan(), find_members=lambda: merged.members)


class _Sizes(NamedTuple):
    """What the ops and shapes of some networks are in others."""

    ops: dict[Op, Op]
    shapes: dict[Shape, Shape]


def _sizes(plans: tuple[Plan, ...], others: tuple[Plan, ...]) -> _Sizes | None:
    """From the others to the plans; None where two would become one, or where more than sizes differ."""
    sizes = _Sizes({}, {})
    looked_at: set[tuple[Skeleton, Skeleton]] = set()
    pairs = set(zip(plans, others, strict=True))
    while pairs:
        within: set[tuple[Plan, Plan]] = set()
        for plan, other in pairs:
            skeletons = plan.skeleton, other.skeleton
            if skeletons not in looked_at:
                if not _differ_in_sizes(*skeletons, sizes):
                    return None
                looked_at.add(skeletons)
            within.update(zip(plan.parts, other.parts, strict=True))
        pairs = within
    apart = all(len(set(mapping.values())) == len(mapping) for mapping in sizes)
    return sizes if apart else None


def _differ_in_sizes(skeleton: Skeleton, other: Skeleton, sizes: _Sizes) -> bool:
    """Whether one is the other in these sizes; what is new of them is added."""
    if len(skeleton.pieces) != len(other.pieces):
        return False
    for new, old in zip(skeleton.pieces, other.pieces, strict=True):
        if sizes.shapes.setdefault(old.shape, new.shape) != new.shape:
            return False
        if isinstance(new, Node) and isinstance(old, Node):
            same_op = type(new.op) is type(old.op) and sizes.ops.setdefault(old.op, new.op) == new.op
            if not same_op or new._replace(op=old.op, shape=old.shape) != old:
                return False
        elif new._replace(shape=old.shape) != old:
            return False
    return True


def _resized(node: Node, own: Op | None, count: int, sizes: _Sizes, given: list[Shape]) -> Op | None:
    """The op of a merged node in other sizes; None where it cannot be had."""
    if node.op.wiring == "input":
        channels, *rest = sizes.shapes[(node.shape[0] // count, *node.shape[1:])]
        return Input((count * channels, *rest))
    if node.op.wiring == "gather":
        return node.op
    if isinstance(node.op, Zero):
        return replace(node.op, channels=sizes.shapes[node.shape][0])
    if own is None:
        return None
    new = sizes.ops[own]
    if node.op == own:
        return new
    joint = grouped(new, count, *((shape[0] // count, *shape[1:]) for shape in given))
    return joint if type(joint) is type(node.op) else None
