"""Many networks as one plan: a population that runs in lockstep.

The maps of P networks lie side by side along the first axis of a sample, [B, P*C, H, W]. Nodes of equal op and equal
input shapes become one node: P convolutions are one with P times the groups, P batch norms are one over all channels. A
`GatherSum` brings the maps together that a node needs, unless they lie together already.

Networks with the same skeleton are merged block by block, so that a cell that comes five times is merged once; others
are merged node by node. Within a block, a node is ready when its inputs are there. Sums wait until nothing else is
ready, and convolutions until sums alone are, so that as many as can be are one call. Activations and skips run on a
whole node's output: nothing is gathered for them. A cut edge is one map of zeros for all, and sums leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from epochzero.plan.merged import Members, Merged, Packs, resized
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.lockstep import Apart, Gather, GatherSum
from epochzero.plan.ops.wiring import Add, Concat, Identity, Input, Narrow, Zero
from epochzero.plan.plan import Builder, Inlined, Node, Plan
from epochzero.types import Shape


def mergeable(plan: Plan) -> bool:
    """Whether it has one input and one output, and uses each of its parameters once."""
    return len(plan.input_shapes) == 1 and plan.auxiliary is None and not plan.shares


def merge(plans: Sequence[Plan]) -> Merged:
    """Mergeable plans as one; ValueError unless they take and give the same shapes."""
    if len({(plan.input_shapes, plan.output_shape) for plan in plans}) != 1:
        raise ValueError("networks that run in lockstep take the same inputs and give the same outputs")
    outlines = [outline(plan) for plan in plans]
    if any(other != outlines[0] for other in outlines[1:]):
        return _merged_nodes(tuple(plans))
    net = Builder()
    packs: Packs = {}
    maps: dict[str, int] = {}
    known: dict[tuple[Plan, ...], Merged] = {}
    inlined: list[tuple[int, str, Merged]] = []
    place: list[int] = []
    for at, pieces in enumerate(zip(*(plan.pieces for plan in plans), strict=True)):
        sources = outlines[0][at].sources
        if not sources:
            shape = outlines[0][at].shape
            place.append(net.input((len(plans) * shape[0], *shape[1:]), name=pieces[0].name))
            continue
        given = tuple(outlines[0][source].shape for source in sources)
        alike = tuple([_block(piece, given) for piece in pieces])
        if alike not in known:
            repeated = (resized(alike, other, merged) for other, merged in known.items())
            known[alike] = next((found for found in repeated if found is not None), None) or _merged_nodes(alike)
        block = known[alike]
        name = pieces[0].name
        inside = f"{name}." if isinstance(pieces[0], Inlined) else ""
        place.append(net.inline(block.plan, *(place[source] for source in sources), name=name))
        for param, parts in block.packs.items():
            packs[f"{name}.{param}"] = tuple([(network, inside + part) for network, part in parts])
        maps |= {f"{name}.{node}": count for node, count in block.maps.items()}
        inlined.append((at, name, block))

    def members() -> dict[str, Members]:
        return {
            f"{name}.{node}": found._replace(orders=found.orders + at * LONGEST)
            for at, name, block in inlined
            for node, found in block.members.items()
        }

    blocks = tuple(piece.name for piece in plans[0].pieces if isinstance(piece, Inlined))
    named = tuple([(name, block) for _, name, block in inlined])
    return Merged(net.plan(), len(plans), packs, members, maps, blocks, named)


class _Piece(NamedTuple):
    """What two networks have in common where they have the same skeleton."""

    name: str
    op: Op | None
    shape: Shape
    sources: tuple[int, ...]
    """the pieces that it reads"""


def outline(plan: Plan) -> list[_Piece]:
    """A network's skeleton: networks of equal ones are merged block by block."""
    giver: dict[int, int] = {}
    found: list[_Piece] = []
    size = 0
    for at, piece in enumerate(plan.pieces):
        sources = tuple([giver[i] for i in piece.inputs])
        if isinstance(piece, Inlined):
            found.append(_Piece(piece.name, None, piece.block.output_shape, sources))
            size += piece.block.size - len(sources)
        else:
            found.append(_Piece(piece.name, piece.op, piece.shape, sources))
            size += 1
        giver[size - 1] = at
    return found


def _block(piece: Node | Inlined, given: tuple[Shape, ...]) -> Plan:
    """A piece as a plan of its own."""
    if isinstance(piece, Inlined):
        return piece.block
    inputs = [Node(Input(shape), (), f"input{i}", shape, ()) for i, shape in enumerate(given)]
    return Plan((*inputs, piece._replace(inputs=tuple(range(len(given))))), 0, {})


class _Place(NamedTuple):
    """Where a value is: a node of the merged plan, and which of the maps in it."""

    node: int
    slot: int


class _Step(NamedTuple):
    """A node of a plan, and what merging asks of it."""

    at: int
    """its index in its plan"""
    node: Node
    shapes: tuple[Shape, ...]
    """of its inputs"""
    turn: int
    """nodes of a later turn wait until none of an earlier one is ready"""
    users: tuple[int, ...]
    """the nodes that read it"""


class _Waiting(NamedTuple):
    network: int
    step: _Step


@lru_cache(maxsize=8192)
def _steps(plan: Plan) -> tuple[_Step, ...]:
    users: list[list[int]] = [[] for _ in plan.nodes]
    for i, node in enumerate(plan.nodes):
        for source in set(node.inputs):
            users[source].append(i)
    found = []
    for i, node in enumerate(plan.nodes):
        shapes = tuple([plan.nodes[source].shape for source in node.inputs])
        found.append(_Step(i, node, shapes, _turn(node.op), tuple(users[i])))
    return tuple(found)


LONGEST = 1 << 32
"""no block has as many nodes"""


def _turn(op: Op) -> int:
    """What costs nothing first; sums when nothing else is ready, so that few of them bring most maps together."""
    if isinstance(op, (Zero, Identity)) or op.kind == "activation":
        return 0
    if isinstance(op, (Add, Concat, Narrow)):
        return 3
    return 2 if op.kind in ("conv", "linear") else 1


@lru_cache(maxsize=256)
def _merged_nodes(plans: tuple[Plan, ...]) -> Merged:
    return _Merging(plans).merged()


class _Merging:
    """Places the nodes of all plans, those that are ready and alike together."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self.plans = plans
        self.steps = [_steps(plan) for plan in plans]
        self.missing = [[len(set(step.node.inputs)) for step in steps] for steps in self.steps]
        self.ready: list[_Waiting] = []
        self.net = Builder()
        self.packs: Packs = {}
        self.members: dict[int, list[tuple[int, int, int]]] = {}
        self.made_of: list[Op | None] = []
        self.places: list[dict[int, _Place]] = [{} for _ in plans]
        self.maps: dict[int, tuple[int, Shape]] = {}
        """for each merged node, how many maps of which shape it holds"""
        self.made: dict[tuple[object, ...], int] = {}
        """merged nodes that others may use again"""
        self.blank: set[int] = set()
        """those that hold zeros"""

    def merged(self) -> Merged:
        for k, i in enumerate(self.plans[0].inputs):
            shape = self.plans[0].nodes[i].shape
            index = self.net.input((len(self.plans) * shape[0], *shape[1:]), name=f"n{k}")
            self.maps[index] = len(self.plans), shape
            self.made_of.append(None)
            for network, plan in enumerate(self.plans):
                self._found(_Waiting(network, self.steps[network][plan.inputs[k]]), index, network)
        while self.ready:
            turn = min(one.step.turn for one in self.ready)
            now = [one for one in self.ready if one.step.turn == turn]
            self.ready = [one for one in self.ready if one.step.turn != turn]
            for op, shapes, group in self._groups(now):
                self._place(op, shapes, group)
        ends = [self.places[network][len(plan.nodes) - 1] for network, plan in enumerate(self.plans)]
        output = self._together(ends)
        if output != max(self.maps):
            self._add(Identity(), [output], *self.maps[output], of=Identity())
        maps = {f"n{index}": count for index, (count, _) in self.maps.items()}
        made_of = tuple(self.made_of)
        return Merged(self.net.plan(), len(self.plans), self.packs, self._members, maps, made_of=made_of)

    def _members(self) -> dict[str, Members]:
        found = {}
        for index, members in self.members.items():
            networks, orders, slots = np.array(members, np.int64).T
            found[f"n{index}"] = Members(networks, orders, slots)
        return found

    def _groups(self, now: list[_Waiting]) -> Iterator[tuple[Op, tuple[Shape, ...], list[_Waiting]]]:
        """Nodes of equal op and input shapes, in the order of their first inputs.

        Norms of different merged nodes stay apart: gathering costs more than a second call.
        """
        groups: dict[tuple[Op, tuple[Shape, ...], int], list[tuple[_Place, _Waiting]]] = {}
        for one in now:
            op = one.step.node.op
            first = self.places[one.network][one.step.node.inputs[0]]
            source = first.node if op.kind == "norm" else -1
            groups.setdefault((op, one.step.shapes, source), []).append((first, one))
        for (op, shapes, _), group in groups.items():
            yield op, shapes, [one for _, one in sorted(group, key=_first)]

    def _inputs(self, one: _Waiting) -> list[_Place]:
        return [self.places[one.network][i] for i in one.step.node.inputs]

    def _place(self, op: Op, shapes: tuple[Shape, ...], group: list[_Waiting]) -> None:
        shape = group[0].step.node.shape
        if isinstance(op, Zero):
            index = self._once(("zero", shape), Zero(shape[0], op.stride), self._inputs(group[0])[0].node, 1, shape)
            self.blank.add(index)
            for one in group:
                self._found(one, index, 0)
        elif op.kind in ("activation", "identity"):
            for one in group:
                source = self._inputs(one)[0]
                index = self._once((op, source.node), op, source.node, *self.maps[source.node])
                if source.node in self.blank and isinstance(op, Identity):
                    self.blank.add(index)
                self._found(one, index, source.slot)
        elif isinstance(op, Add):
            self._place_sums(group, shape)
        elif isinstance(op, (Concat, Narrow)) and getattr(op, "axis", 0) == 0:
            index = self._gather([self._inputs(one) for one in group], shape)
            for slot, one in enumerate(group):
                self._found(one, index, slot)
        else:
            self._place_joint(op, shapes, group, shape)

    def _place_sums(self, group: list[_Waiting], shape: Shape) -> None:
        """Without the zeros in them; a sum of one map is that map."""
        sums: list[tuple[_Waiting, list[_Place]]] = []
        for one in group:
            given = self._inputs(one)
            terms = [place for place in given if place.node not in self.blank] or given[:1]
            if len(terms) == 1:
                self._found(one, *terms[0])
            else:
                sums.append((one, terms))
        if sums:
            index = self._sums([terms for _, terms in sums], shape)
            for slot, (one, _) in enumerate(sums):
                self._found(one, index, slot)

    def _place_joint(self, op: Op, shapes: tuple[Shape, ...], group: list[_Waiting], shape: Shape) -> None:
        count = len(group)
        given = [self._inputs(one) for one in group]
        inputs = [self._together([places[k] for places in given]) for k in range(len(shapes))]
        joint = op if count == 1 else op.side_by_side(count, *shapes)
        index = self._add(joint or Apart(op, count), inputs, count, shape, of=op)
        name = f"n{index}"
        for k, attribute in enumerate(op.params(*shapes)):
            parts = [(one.network, one.step.node.params[k]) for one in group]
            if joint is None:
                self.packs |= {f"{name}.{attribute}{i}": (part,) for i, part in enumerate(parts)}
            else:
                self.packs[f"{name}.{attribute}"] = tuple(parts)
        for slot, one in enumerate(group):
            self._found(one, index, slot)

    def _found(self, one: _Waiting, index: int, slot: int) -> None:
        network, step = one
        self.places[network][step.at] = _Place(index, slot)
        if step.node.op.kind:
            self.members.setdefault(index, []).append((network, step.at, slot))
        missing, steps = self.missing[network], self.steps[network]
        for user in step.users:
            missing[user] -= 1
            if not missing[user]:
                self.ready.append(_Waiting(network, steps[user]))

    def _add(self, op: Op, inputs: Sequence[int], count: int, shape: Shape, of: Op | None = None) -> int:
        index = self.net.add(op, *inputs, name=f"n{len(self.maps)}")
        assert index == len(self.maps)
        self.maps[index] = count, shape
        self.made_of.append(of)
        return index

    def _once(self, key: tuple[object, ...], op: Op, source: int, count: int, shape: Shape) -> int:
        if key not in self.made:
            self.made[key] = self._add(op, [source], count, shape, of=op)
        return self.made[key]

    def _together(self, places: list[_Place]) -> int:
        """The node whose maps are these and no others, in this order."""
        node = places[0].node
        if len(places) == self.maps[node][0] and all(place == (node, slot) for slot, place in enumerate(places)):
            return node
        return self._sums([[place] for place in places], self.maps[node][1])

    def _sums(self, maps: list[list[_Place]], shape: Shape) -> int:
        """A node with these maps, each the sum of some."""
        sources = sorted({place.node for places in maps for place in places})
        which = {node: k for k, node in enumerate(sources)}
        terms = tuple([tuple([(which[node], slot) for node, slot in places]) for places in maps])
        key = (tuple(sources), terms)
        if key not in self.made:
            op = GatherSum.of(terms, [self.maps[node][0] for node in sources])
            self.made[key] = self._add(op, sources, len(maps), shape)
        return self.made[key]

    def _gather(self, maps: list[list[_Place]], shape: Shape) -> int:
        """A node with these maps, each joined from places and cut to its channels."""
        sources = sorted({place.node for places in maps for place in places})
        which = {node: k for k, node in enumerate(sources)}
        pieces: list[tuple[int, int, int]] = []
        for places in maps:
            left = shape[0]
            for node, slot in places:
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
            self.made[key] = self._add(Gather(tuple(pieces)), sources, len(maps), shape)
        return self.made[key]


def _first(placed: tuple[_Place, _Waiting]) -> tuple[int, int, int, int]:
    """Sorts by the place of the first input, then by network and node."""
    place, one = placed
    return *place, one.network, one.step.at
