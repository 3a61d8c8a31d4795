"""Merging node by node: the nodes of all plans that are ready and alike become one.

A node is ready when its inputs are placed. Sums wait until nothing else is ready, and convolutions until only sums are,
so that as many as possible become one call. Activations and skips run on the whole output of a node, without a gather.
All cut edges share one map of zeros, which sums leave out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from epochzero.engine.gpu.fused import GatherTable
from epochzero.engine.population.grouped_kernels import with_kernels
from epochzero.engine.population.grouped_ops import Apart, Gather, GatherSum, grouped
from epochzero.engine.population.merged import Members, Merged, Pack, Packs
from epochzero.engine.population.node_arrays import Flat, Numbers, Row
from epochzero.plan.builder import Builder
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.wiring import Identity, Input, Zero
from epochzero.plan.plan import Plan
from epochzero.types import Shape

TURNS = 4
TURN_OF_KIND = {"zero": 0, "identity": 0, "activation": 0, "conv": 2, "linear": 2}


def _turn(op: Op) -> int:
    """Returns the turn of an op: free ops first, sums last, so that few gathers collect most maps."""
    return 3 if op.wiring in ("sum", "join") else TURN_OF_KIND.get(op.kind, 1)


@lru_cache(maxsize=16)
def merged_nodes(plans: tuple[Plan, ...]) -> Merged:
    """Merges plans of the same input and output shapes, node by node."""
    return _Merging(plans).merged()


class _Merging:
    """Assigns the nodes of all plans to merged nodes."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self.size = len(plans)
        self.flat = Flat.of(plans)
        table = self.flat.table
        alike: dict[tuple[Op, tuple[Shape, ...]], int] = {}
        self.alike = np.array([alike.setdefault((row.op, row.shapes), len(alike)) for row in table])
        self.norms = np.array([row.op.kind == "norm" for row in table])
        self.common = self._common()
        self.turns = np.array([_turn(row.op) for row in table])[self.flat.rows]
        self.missing = self.flat.new.sum(1)
        self.users, self.user_starts = _users(self.flat)
        self.ready: list[list[Numbers]] = [[] for _ in range(TURNS)]
        self.arrived: list[Numbers] = []
        """placed nodes whose readers do not count them as ready yet"""
        self.net = Builder()
        self.packs: Packs = {}
        self.members: dict[int, list[tuple[Numbers, Numbers]]] = {}
        """for each merged node, the layers that it runs and their slots"""
        self.made_of: list[Op | None] = []
        self.node = np.zeros_like(self.missing)
        """the merged node of each node"""
        self.slot = np.zeros_like(self.missing)
        """its index among the maps of the merged node"""
        self.blank = np.zeros(len(self.missing), np.bool_)
        """True for nodes that are zeros"""
        self.maps: list[tuple[int, Shape]] = []
        """for each merged node, the number and shape of its maps"""
        self.made: dict[tuple[object, ...], int] = {}
        """merged nodes that can be reused"""

    def _common(self) -> NDArray[np.bool_]:
        """Returns for each kind of node whether at least half of the networks have it."""
        kinds = np.unique(self.alike[self.flat.rows] * self.size + self.flat.networks) // self.size
        return 2 * np.bincount(kinds, minlength=len(self.alike)) >= self.size

    def merged(self) -> Merged:
        self._place_inputs()
        while (now := self._next()) is not None:
            for group in self._groups(now):
                self._place(group)
        ends = self.flat.firsts[1:] - 1
        output = self._together(self.node[ends], self.slot[ends])
        if output != len(self.maps) - 1:
            self._add(Identity(), [output], *self.maps[output], of=Identity())
        maps = {f"n{index}": count for index, (count, _) in enumerate(self.maps)}
        return Merged(self.net.plan(), self.size, self.packs, self._members, maps, made_of=tuple(self.made_of))

    def _members(self) -> dict[str, Members]:
        if not self.members:
            return {}
        parts = itertools.chain.from_iterable(self.members.values())
        layers, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
        networks = self.flat.networks[layers]
        ends = np.cumsum([sum(len(own) for own, _ in parts) for parts in self.members.values()])
        columns = [np.split(one, ends) for one in (networks, layers - self.flat.firsts[networks], slots)]
        return {f"n{index}": Members(*own) for index, *own in zip(self.members, *columns, strict=False)}

    def _place_inputs(self) -> None:
        are_inputs = np.array([row.op.wiring == "input" for row in self.flat.table])
        inputs = np.flatnonzero(are_inputs[self.flat.rows]).reshape(self.size, -1)
        for group in inputs.T:
            shape = self._row(group).shape
            index = self._add(Input((self.size * shape[0], *shape[1:])), [], self.size, shape)
            self._placed(group, index, np.arange(self.size))

    def _next(self) -> Numbers | None:
        """Returns the nodes whose turn it is, in the order in which they became ready."""
        placed, self.arrived = np.concatenate(self.arrived), []
        begin = self.user_starts[placed]
        counts = self.user_starts[placed + 1] - begin
        users = self.users[_ranges(begin, counts)]
        np.subtract.at(self.missing, users, 1)
        users = users[self.missing[users] == 0]
        done = users[np.sort(len(users) - 1 - np.unique(users[::-1], return_index=True)[1])]
        for turn, waiting in enumerate(self.ready):
            waiting.append(done[self.turns[done] == turn])
        for turn, waiting in enumerate(self.ready):
            now, self.ready[turn] = np.concatenate(waiting), []
            if len(now):
                return now
        return None

    def _groups(self, now: Numbers) -> list[Numbers]:
        """Groups nodes of equal op and input shapes, in the order of their first inputs.

        Norms of different merged nodes stay apart: gathering costs more than a second call.
        """
        first = self.flat.inputs[now, 0]
        node, rows = self.node[first], self.flat.rows[now]
        key = self.alike[rows] * (len(self.maps) + 1) + np.where(self.norms[rows], node + 1, 0)
        _, begin, inverse = np.unique(key, return_index=True, return_inverse=True)
        rank = begin[inverse]
        order = np.lexsort((now, self.slot[first], node, rank))
        return np.split(now[order], np.flatnonzero(np.diff(rank[order])) + 1)

    def _row(self, group: Numbers) -> Row:
        return self.flat.table[int(self.flat.rows[group[0]])]

    def _place(self, group: Numbers) -> None:
        op, shapes, shape, params, _ = self._row(group)
        first = self.flat.inputs[group, 0]
        whole = op.kind == "zero" or (op.kind in ("activation", "identity") and op.channelwise and not params)
        if op.kind == "zero" and len(shape) == 3:
            source = int(self.node[first[0]])
            index = self._once(("zero", shape), Zero(shape[0], getattr(op, "stride", 1)), source, 1, shape)
            self._placed(group, index, np.zeros_like(group))
            self.blank[group] = True
        elif whole:  # once for all maps of the node that it reads
            for source in sorted(set(self.node[first].tolist())):
                index = self._once((op, source), op, source, *self.maps[source])
                own = self.node[first] == source
                self._placed(group[own], index, self.slot[first[own]])
            if op.kind != "activation":
                self.blank[group] = self.blank[first] | (op.kind == "zero")
        elif op.wiring == "sum":
            self._place_sums(group, len(shapes), shape)
        elif op.wiring == "join":
            self._placed(group, self._gather(self.flat.inputs[group, : len(shapes)], shape), np.arange(len(group)))
        else:
            self._place_joint(op, shapes, group, shape)

    def _place_sums(self, group: Numbers, terms: int, shape: Shape) -> None:
        """Places sums without the zeros in them; a sum of one map is that map."""
        given = self.flat.inputs[group, :terms]
        kept = ~self.blank[given]
        kept[~kept.any(1), 0] = True
        counts = kept.sum(1)
        alone, many = counts == 1, counts > 1
        if alone.any():
            term = given[alone][kept[alone]]
            self._placed(group[alone], self.node[term], self.slot[term])
            self.blank[group[alone]] = self.blank[term]
        if many.any():
            read = given[many][kept[many]]
            index = self._sums(counts[many], self.node[read], self.slot[read], shape)
            self._placed(group[many], index, np.arange(many.sum()))

    def _place_joint(self, op: Op, shapes: tuple[Shape, ...], group: Numbers, shape: Shape) -> None:
        count = len(group)
        given = self.flat.inputs[group]
        inputs = [self._together(self.node[given[:, k]], self.slot[given[:, k]]) for k in range(len(shapes))]
        common = bool(self.common[self.alike[self.flat.rows[group[0]]]])
        joint = with_kernels(op, 1, common) if count == 1 else grouped(op, count, *shapes, common=common)
        index = self._add(joint, inputs, count, shape, of=op)
        networks = self.flat.networks[group].tolist()
        own = [self.flat.table[row].params for row in self.flat.rows[group].tolist()]
        for attribute, names in zip(op.params(*shapes), zip(*own, strict=True), strict=True):
            if isinstance(joint, Apart):
                each = enumerate(zip(networks, names, strict=True))
                self.packs |= {f"n{index}.{attribute}{i}": Pack((p,), (name,)) for i, (p, name) in each}
            else:
                self.packs[f"n{index}.{attribute}"] = Pack(networks, names)
        self._placed(group, index, np.arange(count))

    def _placed(self, group: Numbers, index: int | Numbers, slots: Numbers) -> None:
        """Notes the merged node, or nodes, of a group, and the slots in it."""
        self.node[group], self.slot[group] = index, slots
        if isinstance(index, int) and self._row(group).op.kind:
            self.members.setdefault(index, []).append((group, slots))
        self.arrived.append(group)

    def _add(self, op: Op, inputs: Sequence[int], count: int, shape: Shape, of: Op | None = None) -> int:
        index = self.net.add(op, *inputs, name=f"n{len(self.maps)}")
        assert index == len(self.maps)
        self.maps.append((count, shape))
        self.made_of.append(of)
        return index

    def _once(self, key: tuple[object, ...], op: Op, source: int, count: int, shape: Shape) -> int:
        if key not in self.made:
            self.made[key] = self._add(op, [source], count, shape, of=op)
        return self.made[key]

    def _together(self, nodes: Numbers, slots: Numbers) -> int:
        """Returns a node whose maps are these and no others, in this order."""
        node, count = int(nodes[0]), len(nodes)
        if count == self.maps[node][0] and (nodes == node).all() and (slots == np.arange(count)).all():
            return node
        return self._sums(np.ones_like(nodes), nodes, slots, self.maps[node][1])

    def _sums(self, counts: Numbers, nodes: Numbers, slots: Numbers, shape: Shape) -> int:
        """Returns a node whose maps are sums of these; `counts` are the numbers of their terms."""
        sources, which = np.unique(nodes, return_inverse=True)
        key = tuple(column.tobytes() for column in (counts, nodes, slots))
        if key not in self.made:
            outs = np.repeat(np.arange(len(counts)), counts)
            read = sources.tolist()
            table = GatherTable(len(counts), tuple([self.maps[node][0] for node in read]), outs, which, slots)
            self.made[key] = self._add(GatherSum(table), read, len(counts), shape)
        return self.made[key]

    def _gather(self, given: Numbers, shape: Shape) -> int:
        """Returns a node whose maps are each concatenated from the inputs of a node, and cut to its channels."""
        sources = np.unique(self.node[given]).tolist()
        which = {node: k for k, node in enumerate(sources)}
        pieces: list[tuple[int, int, int]] = []
        for nodes, slots in zip(self.node[given].tolist(), self.slot[given].tolist(), strict=True):
            left = shape[0]
            for node, slot in zip(nodes, slots, strict=True):
                channels = self.maps[node][1][0]
                piece = (which[node], slot * channels, min(channels, left))
                left -= piece[2]
                last = pieces[-1] if pieces else None
                if last is not None and last[0] == piece[0] and last[1] + last[2] == piece[1]:
                    pieces[-1] = (last[0], last[1], last[2] + piece[2])
                else:
                    pieces.append(piece)
        key = (tuple(sources), tuple(pieces))
        if key not in self.made:
            self.made[key] = self._add(Gather(tuple(pieces)), sources, len(given), shape)
        return self.made[key]


def _users(flat: Flat) -> tuple[Numbers, Numbers]:
    """Returns the readers of every node, node by node, and where those of each begin."""
    sources, users = flat.inputs[flat.new], np.nonzero(flat.new)[0]
    counts = np.bincount(sources, minlength=len(flat.rows))
    return users[np.argsort(sources, kind="stable")], np.concatenate([[0], np.cumsum(counts)])


def _ranges(begin: Numbers, counts: Numbers) -> Numbers:
    """Returns the ranges of `counts` numbers from each beginning on, concatenated."""
    ends = np.cumsum(counts)
    return np.repeat(begin + counts - ends, counts) + np.arange(counts.sum())
