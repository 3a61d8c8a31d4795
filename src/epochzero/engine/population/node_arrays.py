"""The nodes of many plans as arrays.

Equal nodes at the same place of a skeleton, and in the same block, share one row of a table: the networks of a space
consist of few distinct blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.plan.ops.base import Op
from epochzero.plan.plan import Node, Place, Plan, Skeleton
from epochzero.types import Shape

Numbers = NDArray[np.int64]
NONE = -1


class Row(NamedTuple):
    """The facts of a node."""

    op: Op
    shapes: tuple[Shape, ...]
    """the shapes of its inputs"""
    shape: Shape
    params: tuple[str, ...]
    reads: tuple[int, ...]
    """for each input its distance in nodes or, outside of the block, -1 - its piece"""


class Flat(NamedTuple):
    """The N nodes of several plans, one plan after the other."""

    table: list[Row]
    rows: Numbers
    """[N] the row of each node in the table"""
    networks: Numbers
    """[N] the network of each node"""
    firsts: Numbers
    """where each plan begins, and the end"""
    inputs: Numbers
    """[N, A] the nodes that it reads; NONE beyond"""
    new: NDArray[np.bool_]
    """[N, A] True for the first of equal inputs"""

    @staticmethod
    def of(plans: Sequence[Plan]) -> Flat:
        segments = _Segments()
        segments_of_plans = [segments.of(plan) for plan in plans]
        pieces = np.cumsum([0, *map(len, segments_of_plans)])
        numbers = np.array([number for own in segments_of_plans for number in own])
        begins = np.array(segments.begins)
        counts = np.diff(begins)[numbers]
        ends = np.cumsum(counts)
        firsts = np.concatenate([[0], ends])[pieces]
        rows = np.arange(ends[-1]) + np.repeat(begins[numbers] + counts - ends, counts)
        networks = np.repeat(np.arange(len(plans)), np.diff(firsts))
        reads, new = _columns(segments.table)
        steps = reads[rows]
        own = np.arange(len(rows))[:, None] - steps
        outside = ends[(pieces[networks][:, None] - 1 - steps) * (steps < 0)] - 1
        inputs = np.where(steps > 0, own, np.where(steps < 0, outside, NONE))
        return Flat(segments.table, rows, networks, firsts, inputs, new[rows])


def _columns(table: list[Row]) -> tuple[Numbers, NDArray[np.bool_]]:
    """Returns the inputs of each row, 0 beyond them, and True for the first of equal ones."""
    width = max(len(row.reads) for row in table)
    reads = np.array([row.reads + (0,) * (width - len(row.reads)) for row in table])
    new = reads != 0
    for k in range(1, width):
        new[:, k] &= (reads[:, :k] != reads[:, k : k + 1]).all(1)
    return reads, new


_Begun = tuple[list[int], list[tuple[int, dict[Plan, int]]]]
"""the segments of a skeleton's nodes, and for each place those of the blocks seen there"""


class _Segments:
    """The rows of each piece, collected when a plan first has it."""

    def __init__(self) -> None:
        self.table: list[Row] = []
        self.begins = [0]
        """where the rows of each segment begin, and the end"""
        self._skeletons: dict[Skeleton, _Begun] = {}

    def of(self, plan: Plan) -> list[int]:
        """Returns the segments of a plan's pieces."""
        skeleton = plan.skeleton
        if skeleton not in self._skeletons:
            self._skeletons[skeleton] = self._begun(skeleton)
        nodes, places = self._skeletons[skeleton]
        numbers = nodes.copy()
        for (at, known), part in zip(places, plan.parts, strict=True):
            if part not in known:
                known[part] = self._added(_rows(skeleton.pieces[at], part))  # type: ignore[arg-type]
            numbers[at] = known[part]
        return numbers

    def _begun(self, skeleton: Skeleton) -> _Begun:
        nodes: list[int] = []
        places: list[tuple[int, dict[Plan, int]]] = []
        for at, piece in enumerate(skeleton.pieces):
            if isinstance(piece, Place):
                nodes.append(NONE)
                places.append((at, {}))
            else:
                nodes.append(self._added([_row(skeleton, piece)]))
        return nodes, places

    def _added(self, rows: list[Row]) -> int:
        self.table += rows
        self.begins.append(len(self.table))
        return len(self.begins) - 2


def _row(skeleton: Skeleton, node: Node) -> Row:
    shapes = tuple([skeleton.pieces[i].shape for i in node.inputs])
    return Row(node.op, shapes, node.shape, node.params, tuple([-1 - i for i in node.inputs]))


def _rows(place: Place, block: Plan) -> list[Row]:
    rows: list[Row] = []
    bound = iter(place.inputs)
    where: list[int] = []
    """for each node of the block its row or, for an input, -1 - the piece"""
    for op, inputs, _, shape, params in block.nodes:
        if not inputs:
            where.append(-1 - next(bound))
            continue
        reads = tuple([len(rows) - where[i] if where[i] >= 0 else where[i] for i in inputs])
        named = tuple([f"{place.home}.{param}" for param in params])
        where.append(len(rows))
        rows.append(Row(op, tuple([block.nodes[i].shape for i in inputs]), shape, named, reads))
    return rows
