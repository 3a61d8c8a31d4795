"""Cells of NAS-Bench-101 as graphs: text and other forms, pruning, and the possible orders of vertices."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from epochzero.errors import UserError
from epochzero.registry import check_known
from epochzero.spaces.base import quoted

OPS = ("conv3x3", "conv1x1", "maxpool3x3")
"""operations in the benchmark's order, which its hash uses"""
OFFICIAL = {"conv3x3": "conv3x3-bn-relu", "conv1x1": "conv1x1-bn-relu", "maxpool3x3": "maxpool3x3"}
NASLIB_OPS = ("input", "output", "maxpool3x3", "conv1x1", "conv3x3")
VERTICES = 7
EDGES = 9
STAGES = 3
CELLS = 3
"""cells in each stage"""

VERTEX = re.compile(r"([^:]*):([0-9]*)")
TABLE_ROW = re.compile(r"([01;]+)\s+([\w\-,]+)")

Sources = tuple[tuple[int, ...], ...]
"""For vertex 1, 2, ... and the output last, its source vertices in order."""


class Cell(NamedTuple):
    """A graph with its vertices in an order in which every edge points forward."""

    ops: tuple[str, ...]
    """operations of the vertices 1, 2, ... between input and output"""
    sources: Sources

    @property
    def edges(self) -> int:
        return sum(map(len, self.sources))


def read(text: str, space: str) -> Cell:
    """Returns the graph that a text describes, including idle vertices.

    conv3x3:0/maxpool3x3:01/output:12                                 ours
    0110;0011;0001;0000 input,conv3x3-bn-relu,maxpool3x3,output       rows of the matrix, then operations
    (0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 2, 1)      NASLib's numbers: the same
    """
    row = TABLE_ROW.fullmatch(text.strip())
    if row is not None:
        return graph([[int(bit) for bit in bits] for bits in row[1].split(";")], row[2].split(","))
    numbers = text.strip().strip("()[]").split(",")
    if len(numbers) > 1 and all(re.fullmatch(r"\s*[0-4]\s*", number, re.ASCII) for number in numbers):
        return _from_naslib([int(number) for number in numbers])
    ops, sources = [], []
    for vertex, part in enumerate(text.strip().split("/"), start=1):
        match = VERTEX.fullmatch(part)
        if match is None:
            raise UserError(
                f"{quoted(part)} should be written as operation:sources, such as conv3x3:01, the last as "
                f"output:sources: {space} joins these by '/'."
            )
        digits = tuple(int(digit) for digit in match[2])
        if any(a >= b for a, b in itertools.pairwise((*digits, vertex))):
            raise UserError(f"The sources of {quoted(part)} should be vertices before {vertex}, each once, in order.")
        ops.append(match[1])
        sources.append(digits)
    if ops[-1] != "output" or len(ops) > VERTICES - 1:
        raise UserError(
            f"{quoted(text)} should be at most {VERTICES - 2} operations and then output:sources, joined by '/'."
        )
    return Cell(tuple(_op(op) for op in ops[:-1]), tuple(sources))


def written(cell: Cell) -> str:
    parts = zip((*cell.ops, "output"), cell.sources, strict=True)
    return "/".join(f"{op}:{''.join(map(str, sources))}" for op, sources in parts)


def pruned(cell: Cell) -> Cell | None:
    """Returns the cell without the vertices on no path from input to output; None if there is no path."""
    last = len(cell.sources)
    fed, needed = {0}, {last}
    for vertex, sources in enumerate(cell.sources, start=1):
        if not fed.isdisjoint(sources):
            fed.add(vertex)
    for vertex in range(last, 0, -1):
        if vertex in needed:
            needed.update(cell.sources[vertex - 1])
    kept = sorted(fed & needed)
    if len(kept) == last + 1:
        return cell
    if last not in fed:
        return None
    place = {vertex: i for i, vertex in enumerate(kept)}
    renamed = (tuple(place[u] for u in cell.sources[v - 1] if u in place) for v in kept[1:])
    return Cell(tuple(cell.ops[v - 1] for v in kept[1:-1]), tuple(renamed))


def usable(cell: Cell, text: str) -> Cell:
    """Returns the cell without idle vertices; UserError if it is outside the benchmark."""
    kept = pruned(cell)
    if kept is None:
        raise UserError(f"No path leads from the input to the output of {quoted(text)}.")
    if kept.edges > EDGES or len(kept.sources) >= VERTICES:
        raise UserError(
            f"A NAS-Bench-101 cell has at most {VERTICES} vertices and {EDGES} edges; "
            f"{quoted(text)} has {len(kept.sources) + 1} and {kept.edges}."
        )
    return kept


@lru_cache(maxsize=1)
def topologies() -> tuple[Sources, ...]:
    """Returns the 6,472 ways to wire 2 to 7 ordered vertices with at most 9 edges, each on a path to the output."""

    def grown(sources: Sources, to_come: int, edges: int) -> Iterator[Sources]:
        vertex = len(sources) + 1
        for many in range(1, min(vertex, edges - to_come) + 1):
            for chosen in itertools.combinations(range(vertex), many):
                if to_come:
                    yield from grown((*sources, chosen), to_come - 1, edges - many)
                elif {u for used in (*sources, chosen) for u in used} == set(range(vertex)):
                    yield (*sources, chosen)

    return tuple(itertools.chain.from_iterable(grown((), inner, EDGES) for inner in range(VERTICES - 1)))


@lru_cache(maxsize=1)
def weights() -> list[int]:
    return list(itertools.accumulate(len(OPS) ** (len(sources) - 1) for sources in topologies()))


def twins(cell: Cell) -> set[Cell]:
    """Returns the cell with its vertices in every possible order, including itself."""
    return {Cell(tuple([cell.ops[v - 1] for v in order]), sources) for order, sources in _orders(cell.sources)}


@lru_cache(maxsize=8192)
def _orders(sources: Sources) -> tuple[tuple[tuple[int, ...], Sources], ...]:
    """Returns each order of the inner vertices with sources first, and the sources in new numbers."""
    last = len(sources)

    def grown(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == last - 1:
            yield order
        for vertex in range(1, last):
            if vertex not in order and all(u in order for u in sources[vertex - 1] if u):
                yield from grown((*order, vertex))

    def renamed(order: tuple[int, ...]) -> Sources:
        place = {0: 0, **{vertex: i for i, vertex in enumerate(order, start=1)}}
        return tuple([tuple(sorted([place[u] for u in sources[v - 1]])) for v in (*order, last)])

    return tuple([(order, renamed(order)) for order in grown(())])


def widths(sources: Sources, width: int) -> dict[int, int]:
    """Returns the channels of each inner vertex, given the output's `width`."""
    feeding = [vertex for vertex in sources[-1] if vertex]
    channels = {}
    for i, vertex in enumerate(feeding):
        channels[vertex] = width // len(feeding) + (i < width % len(feeding))
    for vertex in range(len(sources) - 1, 0, -1):
        if vertex not in channels:
            channels[vertex] = max(channels[w] for w, into in enumerate(sources[:-1], start=1) if vertex in into)
    return channels


def graph(matrix: Sequence[Sequence[int]], ops: Sequence[str]) -> Cell:
    size = len(matrix)
    if size < 2 or any(len(row) != size for row in matrix) or len(ops) != size:
        raise UserError(
            f"The adjacency matrix of a cell has as many columns as rows, and an operation for each. This one has "
            f"{size} rows of {', '.join(sorted({str(len(row)) for row in matrix})) or 'no'} columns and {len(ops)} "
            f"operations."
        )
    if any(edge not in (0, 1) or (edge and v <= u) for u, row in enumerate(matrix) for v, edge in enumerate(row)):
        raise UserError("The adjacency matrix of a cell holds zeros and ones, with ones only above the diagonal.")
    if ops[0] != "input" or ops[-1] != "output":
        raise UserError(f"The operations of a cell begin with input and end with output, not {ops[0]} and {ops[-1]}.")
    sources = tuple(tuple(u for u in range(v) if matrix[u][v]) for v in range(1, size))
    return Cell(tuple(_op(op) for op in ops[1:-1]), sources)


def _from_naslib(numbers: Sequence[int]) -> Cell:
    size = math.isqrt(len(numbers))
    if size * (size + 1) != len(numbers):
        raise UserError(
            f"NASLib writes a cell of V vertices as V*V + V numbers, 56 for 7 vertices; these are {len(numbers)}."
        )
    rows = [numbers[i * size : (i + 1) * size] for i in range(size)]
    return graph(rows, [NASLIB_OPS[number] for number in numbers[size * size :]])


def _op(name: str) -> str:
    op = {official: op for op, official in OFFICIAL.items()}.get(name, name)
    check_known(op, OPS, f"nb101 has no operation {quoted(name)}", "It has")
    return op
