"""The blocks of a plan: node names are dotted paths, so a plan is a tree of blocks as well as a graph.

Drawings and printed code both look at one block at a time, as a small graph of its direct parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from epochzero.errors import UserError
from epochzero.plan.plan import Plan
from epochzero.registry import near_miss
from epochzero.types import Shape

TIMES = "\N{MULTIPLICATION SIGN}"
MINOR = ("norm", "activation", "")
"""kinds of op that the label of a block leaves out if it has others"""


class Called(str):
    """The name of a block, with a title for its drawing."""

    words: str

    def __new__(cls, block: str, words: str) -> Called:
        called = super().__new__(cls, block)
        called.words = words
        return called


class Unit(NamedTuple):
    """A direct part of a block: one node, or a block within it."""

    path: str
    """name within the block; dotted only for the parts of a block that had to be opened"""
    nodes: tuple[int, ...]
    block: bool
    sources: tuple[int, ...]
    """nodes outside it that it reads, in the order of first use"""
    outputs: tuple[int, ...]
    """nodes of it that something else reads; its last node where nothing does"""


class Size(NamedTuple):
    """The cost of a part of a network."""

    params: int
    macs: int


def members(plan: Plan, block: str) -> tuple[int, ...]:
    """Returns the nodes of a block, of the whole network for an empty name."""
    nodes = plan.blocks.get(block)
    if nodes is None:
        known = sorted(filter(None, plan.blocks))
        some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise UserError(f"The plan has no block called {block!r}.{near_miss(block, known)} It has {some or 'none'}.")
    return nodes


def boundary(plan: Plan, nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the nodes outside that these nodes read, and those of them that are read outside (else the last one)."""
    inside = set(nodes)
    sources = dict.fromkeys(s for i in nodes for s in plan.nodes[i].inputs if s not in inside)
    ends, readers = plan.outputs, plan.readers
    outputs = tuple(i for i in nodes if i in ends or not readers[i] <= inside)
    return tuple(sources), outputs or tuple(nodes[-1:])


def units(plan: Plan, block: str, opens: Callable[[Unit], bool] = lambda _: False) -> tuple[Unit, ...]:
    """Returns the direct parts of a block in an order in which they can run.

    A block within it is opened, its own parts taking its place, where `opens` says so, and where
    it could not run in one go because it both feeds and reads another part.
    """
    nodes = members(plan, block)
    opened: set[str] = set()
    while True:
        parts = _parts(plan, nodes, f"{block}." if block else "", opened)
        order, stuck = _sorted(parts)
        shut = {unit.path for unit in stuck} | {u.path for u in parts if u.block and opens(u)}
        if not shut:
            return tuple(order)
        opened |= shut


def _parts(plan: Plan, nodes: Sequence[int], prefix: str, opened: set[str]) -> list[Unit]:
    groups: dict[tuple[str, int], list[int]] = {}
    for i in nodes:
        name = plan.nodes[i].name[len(prefix) :]
        dots = (at for at, c in enumerate(name) if c == ".")
        path = next((name[:at] for at in dots if name[:at] not in opened), None)
        groups.setdefault((name, i) if path is None else (path, -1), []).append(i)
    return [Unit(path, tuple(g), node < 0, *boundary(plan, g)) for (path, node), g in groups.items()]


def _sorted(parts: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Returns the units in topological order, and the blocks that make such an order impossible."""
    home = {i: at for at, unit in enumerate(parts) for i in unit.nodes}
    before = [{home[s] for s in unit.sources if s in home} for unit in parts]
    order: dict[int, Unit] = {}
    while (
        ready := next((at for at, b in enumerate(before) if at not in order and b <= order.keys()), None)
    ) is not None:
        order[ready] = parts[ready]

    def reads_itself(at: int) -> bool:
        reached: set[int] = set()
        waiting = set(before[at])
        while waiting:
            reached |= waiting
            waiting = {b for w in waiting for b in before[w]} - reached
        return at in reached

    stuck = [unit for at, unit in enumerate(parts) if at not in order and unit.block and reads_itself(at)]
    return list(order.values()), stuck


def alive(plan: Plan, nodes: Sequence[int]) -> set[int]:
    """Returns the nodes of a block on some path from its inputs to its outputs without a cut edge."""
    sources, outputs = boundary(plan, nodes)
    whole = [i for i in nodes if plan.nodes[i].op.kind != "zero"]
    reached, needed = set(sources), set(outputs)
    for i in whole:
        if reached.intersection(plan.nodes[i].inputs):
            reached.add(i)
    for i in reversed(whole):
        if i in needed:
            needed.update(plan.nodes[i].inputs)
    return reached & needed & set(whole)


def size(plan: Plan, nodes: Sequence[int]) -> Size:
    """Returns trainable parameters, each counted once, and multiply-accumulates of some nodes."""
    names = dict.fromkeys(name for i in nodes for name in plan.nodes[i].params)
    params = sum(plan.weights[name].numel for name in names if plan.weights[name].trainable)
    return Size(params, sum(plan.nodes[i].op.macs(*input_shapes(plan, i)) for i in nodes))


def input_shapes(plan: Plan, node: int) -> tuple[Shape, ...]:
    return tuple(plan.nodes[s].shape for s in plan.nodes[node].inputs)


def is_chain(plan: Plan, unit: Unit) -> bool:
    """Returns True where each node reads the one before it and nothing else."""
    before = (*unit.sources, *unit.nodes)
    links = zip(unit.nodes, before, strict=False)
    one_way = len(unit.sources) == 1 and unit.outputs == unit.nodes[-1:]
    return one_way and all(plan.nodes[i].inputs == (source,) for i, source in links)


def shape_text(shape: Shape, times: str = TIMES) -> str:
    return times.join(map(str, shape)) or "1"


def labels(plan: Plan, nodes: Sequence[int]) -> list[str]:
    """Returns the labels of the ops that characterise a chain: of ReLU, convolution and norm, the convolution."""
    ops = [plan.nodes[i].op for i in nodes]
    return [op.label() for op in ops if op.kind not in MINOR] or [op.label() for op in ops]
