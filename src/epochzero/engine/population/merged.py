"""The merged plan of many networks; `epochzero.engine.population.merge` makes it."""

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
    """sorts the layers of a network in its own order"""
    slots: Numbers
    """the index of its output among the maps of the merged node, and of its inputs among the node's inputs"""


@dataclass(frozen=True, slots=True)
class Pack:
    """The parameters, each (network, name), that are joined along the first axis."""

    networks: Sequence[int]
    names: Sequence[str]
    inside: str = ""
    """a prefix of each name"""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self.networks, map(self.inside.__add__, self.names), strict=True)


Packs = dict[str, Pack]
"""for each parameter of a merged plan, the parameters that it joins"""


@dataclass(frozen=True)
class Merged:
    """A plan that runs several networks; its last node is their outputs, joined."""

    plan: Plan
    size: int
    """the number of networks"""
    packs: Packs
    find_members: Callable[[], dict[str, Members]]
    maps: dict[str, int]
    """for each node of the plan, the number of networks' maps in its output"""
    blocks: tuple[str, ...] | None = None
    """the networks' blocks, each with the outputs of all networks joined; None where they have none in common"""
    parts: tuple[tuple[str, Merged], ...] = ()
    """its parts with their names, each with the outputs of all networks joined"""
    made_of: tuple[Op | None, ...] = ()
    """for each node of a part the op of one network that it runs; None for gathers"""
    routines: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """the routines of a part, which `epochzero.engine.gpu.block_run` plans once"""

    @cached_property
    def members(self) -> dict[str, Members]:
        """For each node of the plan that is a layer, its members; computed when layers are first watched."""
        return self.find_members()


def resized(plans: tuple[Plan, ...], others: tuple[Plan, ...], merged: Merged) -> Merged | None:
    """Merges plans like others that differ from them in sizes alone; returns None where they differ in more.

    A cell that is repeated with more channels is merged by the same steps and keeps the same tables.
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
    """The ops and shapes of some networks that correspond to those of others."""

    ops: dict[Op, Op]
    shapes: dict[Shape, Shape]


def _sizes(plans: tuple[Plan, ...], others: tuple[Plan, ...]) -> _Sizes | None:
    """Returns the mapping from the others to the plans; None where it is not one-to-one, or more than sizes differ."""
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
    """Returns True where one is the other in these sizes, and adds those that are new."""
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
    """Returns the op of a merged node in other sizes; None where there is none."""
    if node.op.wiring == "input":
        channels, *rest = sizes.shapes[(node.shape[0] // count, *node.shape[1:])]
        return Input((count * channels, *rest))
    if node.op.wiring == "gather":
        return node.op
    if isinstance(node.op, Zero) and node.op.channels is not None:
        return replace(node.op, channels=sizes.shapes[node.shape][0])
    if own is None:
        return None
    new = sizes.ops[own]
    if node.op == own:
        return new
    common = getattr(node.op, "common", True)
    joint = grouped(new, count, *((shape[0] // count, *shape[1:]) for shape in given), common=common)
    return joint if type(joint) is type(node.op) else None
