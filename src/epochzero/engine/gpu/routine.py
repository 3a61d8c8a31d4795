"""The routine of a merged block: which maps of an arena each kernel reads and writes, planned once.

A merged plan computes every node; a routine writes as few maps as it can. The value of a node is kept, for each
network, as terms that add up to it: maps of the arena, some still to be scaled and shifted by a batch norm. Skips,
gathers, norms and sums therefore cost nothing until a convolution, a pooling or the end of the block needs numbers.
Convolutions apply the ReLU before them. Maps on which neither the output nor a collected stream depends are left out.

The backward pass is planned in the same way: the gradient of a map is the sum of the gradients that its readers send.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from epochzero.engine.gpu.routine_steps import (
    NONE,
    BackConvolution,
    BackPooling,
    BackStep,
    Convolution,
    Mask,
    Numbers,
    Pooling,
    Routine,
    Step,
    Sum,
    Value,
    nothing,
    side_by_side,
    single,
)
from epochzero.engine.population.grouped_kernels import GroupedConv
from epochzero.engine.population.grouped_ops import GatherSum
from epochzero.engine.population.merged import Merged
from epochzero.plan.ops.base import Op
from epochzero.plan.plan import Node, Place, Plan, Skeleton
from epochzero.types import Shape

NOTHING = -(2**31)
"""stands for a slot where no gradient arrives"""


class NoRoutineError(Exception):
    """Raised for a block with an op that routines cannot run, or without a convolution that many networks have."""


def routine(block: Merged, norm: bool, watched: Collection[str] = ()) -> Routine:
    """Returns the routine of a merged block, with batch norms or (`norm` False) without; or raises NoRoutineError.

    `watched` are the streams that are read, of `relus`, `norms`.
    """
    return _Writer(block, norm, watched).routine()


class _Writer:
    def __init__(self, block: Merged, norm: bool, watched: Collection[str]) -> None:
        self.block, self.norm, self.watched = block, norm, watched
        self.nodes = block.plan.nodes
        self.maps = [block.maps[node.name] for node in self.nodes]
        self.kinds = [node.op.routine_step(count) for node, count in zip(self.nodes, self.maps, strict=True)]
        if len(block.plan.inputs) != 1 or not all(self.kinds):
            raise NoRoutineError
        convs = [node.op for node in self.nodes if node.op.kind == "conv"]
        if convs and not any(isinstance(op, GroupedConv) and op.common for op in convs):
            raise NoRoutineError
        self.shape_numbers: dict[Shape, int] = {}
        self.shapes: list[int] = []
        self.shape = [self._shape(i) for i in range(len(self.nodes))]
        self.norms = {node.inputs[0]: i for i, node in enumerate(self.nodes) if self._is_norm(i)}
        self.slots = [0] * len(self.shapes)
        self.rows = [0] * len(self.shapes)
        self.steps: list[Step] = []
        self.values: list[Value] = []
        self.relus: dict[int, tuple[Numbers, Numbers]] = {}

    def _shape(self, i: int) -> int:
        channels, *size = self.nodes[i].shape
        shape = (channels // self.maps[i], *size)
        if len(shape) != 3:
            raise NoRoutineError
        if shape not in self.shape_numbers:
            self.shape_numbers[shape] = len(self.shapes)
            self.shapes.append(i)
        return self.shape_numbers[shape]

    def _is_norm(self, i: int) -> bool:
        return self.norm and self.kinds[i] == "norm"

    def routine(self) -> Routine:
        self._find_needed()
        for i in range(len(self.nodes)):
            value = self._value(i)
            missing = np.flatnonzero(self.read[i] & ~value.written)
            if len(missing):
                value = self._write(i, value, missing)
            self.values.append(value)
        last = self.values[-1]
        if last.rectified:
            raise NoRoutineError
        output = Sum(self.shape[-1], 0, last)
        back = _BackWriter(self.steps, output, len(self.shapes), self.maps[0])
        return Routine(
            tuple(self.shapes),
            tuple(self.slots),
            tuple(self.rows),
            tuple(self.steps),
            output,
            tuple(back.slots),
            tuple(back.steps),
            back.of_input,
            self.relus,
        )

    def _find_needed(self) -> None:
        """Finds the maps of each node on which something depends, and those that are read as maps."""
        self.alive = [np.zeros(count, np.bool_) for count in self.maps]
        self.read = [np.zeros(count, np.bool_) for count in self.maps]
        self.alive[-1][:] = True
        for i in range(len(self.nodes) - 1, -1, -1):
            node, alive, read = self.nodes[i], self.alive[i], self.read[i]
            if isinstance(node.op, GatherSum):
                self._trace_back(i, node.op)
            elif self.kinds[i] in ("convolution", "pooling"):
                self.alive[node.inputs[0]] |= alive
                self.read[node.inputs[0]] |= alive
            elif node.inputs and node.op.kind != "zero":
                source = node.inputs[0]
                if self.kinds[i] == "relu" and "relus" in self.watched:
                    seen = self._seen(i)
                    alive, read = alive | seen, read | seen
                if self._is_norm(i) and "norms" in self.watched:
                    alive = alive | self._seen(i)
                self.alive[source] |= alive
                self.read[source] |= read & (not self._is_norm(i))

    def _seen(self, i: int) -> Mask:
        """Returns which maps of a node are the output of a layer of some network."""
        seen = np.zeros(self.maps[i], np.bool_)
        members = self.block.members.get(self.nodes[i].name)
        if members is not None:
            seen[members.slots] = True
        return seen

    def _trace_back(self, i: int, op: GatherSum) -> None:
        table = op.table
        alone = np.bincount(table.outs, minlength=table.maps) == 1
        for which, source in enumerate(self.nodes[i].inputs):
            own = table.sources == which
            outs, slots = table.outs[own], table.slots[own]
            self.alive[source][slots[self.alive[i][outs]]] = True
            self.read[source][slots[self.read[i][outs] & alone[outs]]] = True

    def _value(self, i: int) -> Value:
        node = self.nodes[i]
        given = [self.values[source] for source in node.inputs]
        op, kind = node.op, self.kinds[i]
        if op.wiring == "input":
            return single(-1 - np.arange(self.maps[i]))
        if isinstance(op, GatherSum):
            return self._gathered(i, op, given)
        if op.kind == "zero" or (kind not in ("wiring", "relu") and not self.alive[i].any()):
            return nothing(self.maps[i])
        writers = {"relu": self._rectified, "convolution": self._convolved, "pooling": self._pooled}
        writers |= {"norm": self._normed} if self.norm else {}
        return writers[kind](i, given[0]) if kind in writers else given[0]

    def _rectified(self, i: int, given: Value) -> Value:
        seen = np.flatnonzero(self._seen(i)) if "relus" in self.watched else np.arange(0)
        if len(seen):
            self.relus[i] = seen, given.slots[given.starts[seen]]
        return given._replace(rectified=True)

    def _gathered(self, i: int, op: GatherSum, given: list[Value]) -> Value:
        table, alive = op.table, self.alive[i]
        kept = alive[table.outs]
        outs, sources, slots = table.outs[kept], table.sources[kept], table.slots[kept]
        rectified = {given[which].rectified for which in np.unique(sources).tolist()}
        sums = np.bincount(outs, minlength=table.maps) > 1
        if len(rectified) > 1 or (rectified == {True} and sums.any()):
            raise NoRoutineError
        offsets = np.cumsum([0, *(len(value.counts) for value in given)])
        parts = side_by_side(given).part(offsets[sources] + slots)
        counts = np.bincount(outs, weights=parts.counts, minlength=table.maps).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return Value(starts, parts.slots, parts.rows, rectified == {True})

    def _write(self, i: int, value: Value, missing: Numbers) -> Value:
        """Returns the same value after writing these maps into the arena."""
        if value.rectified:
            raise NoRoutineError
        shape = self.shape[i]
        first = _allocated(self.slots, shape, len(missing))
        self.steps.append(Sum(shape, first, value.part(missing)))
        written = single(first + np.arange(len(missing)))
        place = np.arange(len(value.counts))
        place[missing] = len(value.counts) + np.arange(len(missing))
        return side_by_side([value, written]).part(place)

    def _sources(self, i: int, given: Value) -> tuple[Numbers, Numbers]:
        """Returns the maps of the node that are needed, and the slots that they read."""
        which = np.flatnonzero(self.alive[i])
        return which, given.slots[given.starts[which]]

    def _found(self, i: int, which: Numbers, first: int, row: int | None = None) -> Value:
        """Returns a value whose maps `which` are in the slots from `first` on; its other maps are zero."""
        counts = np.zeros(self.maps[i], np.int64)
        counts[which] = 1
        slots = first + np.arange(len(which))
        rows = np.full_like(slots, NONE) if row is None else row + np.arange(len(which))
        return Value(np.concatenate([[0], np.cumsum(counts)]), slots, rows)

    def _convolved(self, i: int, given: Value) -> Value:
        which, sources = self._sources(i, given)
        shape = self.shape[i]
        norm = self.norms.get(i)
        row = self.rows[shape]
        self.rows[shape] += 0 if norm is None else len(which)
        first = _allocated(self.slots, shape, len(which))
        source = self.nodes[i].inputs[0]
        self.steps.append(Convolution(i, norm, self.shape[source], shape, first, row, sources, which, given.rectified))
        return self._found(i, which, first)

    def _normed(self, i: int, given: Value) -> Value:
        """A norm has to read a convolution that nothing else reads."""
        source = self.nodes[i].inputs[0]
        step = next((s for s in self.steps if isinstance(s, Convolution) and s.node == source), None)
        if step is None or len(self.block.plan.readers[source]) > 1:
            raise NoRoutineError
        return self._found(i, step.which, step.first, step.row)

    def _pooled(self, i: int, given: Value) -> Value:
        if given.rectified:
            raise NoRoutineError
        which, sources = self._sources(i, given)
        shape = self.shape[i]
        first = _allocated(self.slots, shape, len(which))
        self.steps.append(Pooling(i, self.shape[self.nodes[i].inputs[0]], shape, first, sources))
        return self._found(i, which, first)


def blocks_with_routines(plan: Plan) -> frozenset[str]:
    """Returns the names of a network's blocks that seem to have a routine, judged by their ops, which is quick.

    None where a block reads more than one other: such networks do not run by routines at all.
    """
    if not _one_by_one(plan.skeleton):
        return frozenset()
    places = zip(plan.skeleton.places, plan.parts, strict=True)
    return frozenset([place.name for place, part in places if _has_routine(part)])


@lru_cache(maxsize=1024)
def _one_by_one(skeleton: Skeleton) -> bool:
    return all(len(piece.inputs) == 1 for piece in skeleton.pieces[1:])


@lru_cache(maxsize=8192)
def _has_routine(block: Plan) -> bool:
    """The output of a routine is a sum of maps: it cannot end with a ReLU."""
    return _all_known(block) and _last(block).routine_step() != "relu"


def _last(block: Plan) -> Op:
    last = block.skeleton.pieces[-1]
    return _last(block.parts[-1]) if isinstance(last, Place) else last.op


@lru_cache(maxsize=8192)
def _all_known(block: Plan) -> bool:
    return _nodes_known(block.skeleton) and all(map(_all_known, block.parts))


@lru_cache(maxsize=8192)
def _nodes_known(skeleton: Skeleton) -> bool:
    nodes = (piece for piece in skeleton.pieces if isinstance(piece, Node))
    return all(node.op.routine_step() or node.op.wiring == "sum" for node in nodes)


def _allocated(slots: list[int], shape: int, count: int) -> int:
    """Takes `count` more slots of a shape and returns the first."""
    first = slots[shape]
    slots[shape] += count
    return first


class _BackWriter:
    """Plans the backward pass: which gradients are sent to each map, or to a map after its norm."""

    def __init__(self, steps: Sequence[Step], output: Sum, shapes: int, networks: int) -> None:
        self.slots = [0] * shapes
        self.steps: list[BackStep] = []
        self.sent: list[list[tuple[Numbers, Numbers, Numbers]]] = [[] for _ in range(shapes)]
        """for each shape, (slots, rows, slots of the gradients sent to them)"""
        self._pass_on(output, -1 - np.arange(len(output.terms.counts)))
        for step in reversed(steps):
            if isinstance(step, Sum):
                count = len(step.terms.counts)
                self._pass_on(step, self._arrived(step.shape, step.first, count, NONE))
            elif isinstance(step, Convolution):
                self._convolution(step)
            else:
                self._pooling(step)
        given = self._collected(0, -1 - np.arange(networks), np.full(networks, NONE))
        self.of_input = Sum(0, 0, given)

    def _collected(self, shape: int, slots: Numbers, rows: Numbers) -> Value:
        """Returns the gradients that were sent to these maps, as terms."""
        sent = [one for one in self.sent[shape] if len(one[0])]
        if not sent or not len(slots):
            return nothing(len(slots))
        to, of_row, gradients = (np.concatenate(column) for column in zip(*sent, strict=True))
        low, wide = min(to.min(), slots.min()), int(max(of_row.max(), rows.max())) + 2
        keys, own = (to - low) * wide + of_row + 1, (slots - low) * wide + rows + 1
        order = np.argsort(keys, kind="stable")
        keys, gradients = keys[order], gradients[order]
        begin, end = np.searchsorted(keys, own), np.searchsorted(keys, own, "right")
        counts = end - begin
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(begin - starts[:-1], counts) + np.arange(starts[-1])
        return Value(starts, gradients[at], np.full(len(at), NONE))

    def _arrived(self, shape: int, first: int, count: int, row: int) -> Numbers:
        """Returns the slots of the gradients of `count` maps, or of their norms' output from a row on."""
        slots = first + np.arange(count)
        rows = np.full(count, NONE) if row == NONE else row + np.arange(count)
        value = self._collected(shape, slots, rows)
        slots = np.full(count, NOTHING)
        alone, many = value.counts == 1, np.flatnonzero(value.counts > 1)
        slots[alone] = value.slots[value.starts[:-1][alone]]
        if len(many):
            at = _allocated(self.slots, shape, len(many))
            self.steps.append(Sum(shape, at, value.part(many)))
            slots[many] = at + np.arange(len(many))
        return slots

    def _pass_on(self, step: Sum, gradients: Numbers) -> None:
        """The gradient of a sum is that of each of its terms."""
        own = np.repeat(gradients, step.terms.counts)
        there = own != NOTHING
        self.sent[step.shape].append((step.terms.slots[there], step.terms.rows[there], own[there]))

    def _convolution(self, step: Convolution) -> None:
        row = NONE if step.norm is None else step.row
        gradients = self._arrived(step.shape, step.first, len(step.which), row)
        alive = np.flatnonzero(gradients != NOTHING)
        if len(alive):
            first = _allocated(self.slots, step.given, len(alive))
            self.steps.append(BackConvolution(step, gradients[alive], alive, first))
            self._send(step.given, step.sources[alive], first)

    def _pooling(self, step: Pooling) -> None:
        gradients = self._arrived(step.shape, step.first, len(step.sources), NONE)
        alive = np.flatnonzero(gradients != NOTHING)
        if len(alive):
            first = _allocated(self.slots, step.given, len(alive))
            self.steps.append(BackPooling(step, gradients[alive], first))
            self._send(step.given, step.sources[alive], first)

    def _send(self, shape: int, to: Numbers, first: int) -> None:
        self.sent[shape].append((to, np.full_like(to, NONE), first + np.arange(len(to))))
