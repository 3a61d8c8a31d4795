"""Genotypes: a pair of cells in the notation of the DARTS community, with the published ones by name.

    Genotype(normal=[('sep_conv_3x3', 0), ('skip_connect', 1), ...], normal_concat=range(2, 6), reduce=[...], ...)

Nodes 0 and 1 of a cell are its inputs; each of the nodes 2, 3, ... has two (operation, source) pairs; the nodes of
`concat` are the cell's output. NASLib's compact form, ((source, number of the operation), ...) for the normal and the
reduction cell, is accepted too.
"""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

from epochzero.errors import UserError
from epochzero.registry import check_known
from epochzero.spaces.base import quoted

SEARCHED = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
"""operations of a search, in the order of NASLib's numbers"""
MOST_NODES = 8
"""most nodes of a cell; published cells have up to five"""
OPS = ("none", *SEARCHED, "sep_conv_7x7", "conv_7x1_1x7")
"""all operations of a cell; NASNet and AmoebaNet have the last two"""
LONGEST = 10_000
"""most characters of a genotype"""

Edge = tuple[str, int]
"""Operation and source."""
Cell = tuple[Edge, ...]
"""The edges of node 2, of node 3 and so on, two for each."""


class Genotype(NamedTuple):
    """The cells of a network."""

    normal: Cell
    normal_concat: tuple[int, ...]
    reduce: Cell
    reduce_concat: tuple[int, ...]

    @property
    def text(self) -> str:
        cells = zip(("normal", "reduce"), (self.normal, self.reduce), strict=True)
        concats = (self.normal_concat, self.reduce_concat)
        parts = [
            f"{name}={list(cell)}, {name}_concat={_span(concat)}"
            for (name, cell), concat in zip(cells, concats, strict=True)
        ]
        return f"Genotype({', '.join(parts)})"


def _span(concat: tuple[int, ...]) -> str:
    span = range(concat[0], concat[-1] + 1)
    return str(span if tuple(span) == concat else list(concat))


def parse(text: str) -> Genotype:
    """Returns the genotype of a text: `Genotype(...)`, NASLib's compact form, or the name of a published one."""
    shown = quoted(text)
    match tree := _tree(text):
        case ast.Name(name):
            check_known(name, GENOTYPES, f"No published genotype is called {name!r}")
            return GENOTYPES[name]
        case ast.Call(ast.Name("Genotype"), [], fields):
            given = {field.arg: _value(field.value) for field in fields}
            if set(given) != set(Genotype._fields) or len(fields) != len(given):
                wanted = ", ".join(f"{name}=..." for name in Genotype._fields)
                raise UserError(f"{shown} should be written as Genotype({wanted}), each of them once.")
            return Genotype(
                *_cell("normal", given["normal"], given["normal_concat"]),
                *_cell("reduce", given["reduce"], given["reduce_concat"]),
            )
        case ast.Tuple() | ast.List():
            return _from_compact(_value(tree), shown)
    raise UserError(
        f"{shown} is not a genotype: write Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=range(2, 6), "
        f"reduce=[...], reduce_concat=range(2, 6)), or a name such as DARTS_V2."
    )


def _tree(text: str) -> ast.expr | None:
    """Returns the syntax tree of a Python expression without running it; None for any other text."""
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(tree: ast.expr) -> Any:
    """Returns the numbers, strings, lists, tuples and ranges in an expression; None for anything else."""
    match tree:
        case ast.Constant(int() | str()) if not isinstance(tree.value, bool):
            return tree.value
        case ast.Tuple(parts) | ast.List(parts):
            return [_value(part) for part in parts]
        case ast.Call(ast.Name("range"), [ast.Constant(int(first)), ast.Constant(int(end))], []):
            return list(range(first, min(end, first + LONGEST)))
    return None


def _cell(name: str, edges: Any, concat: Any) -> tuple[Cell, tuple[int, ...]]:
    """Returns a cell and its output nodes, checked."""
    if not isinstance(edges, list) or not edges or len(edges) % 2:
        raise UserError(f"The {name} cell should be a list of two ('operation', source) pairs for each node.")
    if len(edges) > 2 * MOST_NODES:
        raise UserError(f"The {name} cell has {len(edges) // 2} nodes of its own, more than {MOST_NODES}.")
    cell: list[Edge] = []
    for i, edge in enumerate(edges):
        node = i // 2 + 2
        match edge:
            case [str(op), int(source)]:
                cell.append((op, source))
            case _:
                raise UserError(f"Edge {i} of the {name} cell should be written as ('operation', source).")
        check_known(op, OPS, f"A {name} cell has no operation {quoted(op)}", "It may have")
        if not 0 <= source < node:
            raise UserError(f"Node {node} of the {name} cell reads node {source}; it may read 0 to {node - 1}.")
    last = len(cell) // 2 + 1
    match concat:
        case [_, *_] if all(isinstance(node, int) and 2 <= node <= last for node in concat):
            if len(set(concat)) == len(concat):
                return tuple(cell), tuple(concat)
    raise UserError(f"{name}_concat should list nodes between 2 and {last}, each at most once, such as range(2, 6).")


def _from_compact(pair: list[Any], shown: str) -> Genotype:
    """Returns the genotype of NASLib's form: eight (source, operation number) per cell, all nodes in the output."""
    if len(pair) != 2 or not all(isinstance(edges, list) and len(edges) == 8 for edges in pair):
        raise UserError(f"{shown} is not a compact genotype: that is two cells of eight (source, operation) each.")
    normal, reduce = ([_from_numbers(edge, shown) for edge in edges] for edges in pair)
    return Genotype(*_cell("normal", normal, [2, 3, 4, 5]), *_cell("reduce", reduce, [2, 3, 4, 5]))


def _from_numbers(edge: Any, shown: str) -> list[Any]:
    match edge:
        case [int(source), int(op)] if 0 <= op < len(SEARCHED):
            return [SEARCHED[op], source]
    raise UserError(f"An edge of {shown} is not (source, operation) with an operation of 0 to {len(SEARCHED) - 1}.")


def in_order(cell: Cell) -> Cell:
    """Returns the cell with the two edges of each node sorted by source."""
    pairs = zip(cell[::2], cell[1::2], strict=True)
    return tuple([edge for a, b in pairs for edge in ((a, b) if a[::-1] <= b[::-1] else (b, a))])


@lru_cache(maxsize=4096)
def canonical(cell: Cell, concat: tuple[int, ...]) -> tuple[Cell, tuple[int, ...]]:
    """Returns the common form of cells that differ only in the order of edges and the numbers of nodes.

    It is the alphabetically first numbering, built node by node: the next node is the one whose edges come first. If
    several tie, all of them are tried, except that twins (read by the same nodes) are tried once.
    """
    nodes = dict(enumerate(zip(cell[::2], cell[1::2], strict=True), start=2))
    readers = {
        node: (node in concat, *sorted((to, op) for to, pair in nodes.items() for op, source in pair if source == node))
        for node in nodes
    }

    def finished(place: dict[int, int], so_far: Cell) -> tuple[Cell, tuple[int, ...]]:
        if len(place) == len(nodes) + 2:
            return so_far, tuple(sorted(place[node] for node in concat))
        ready: dict[int, Cell] = {}
        for node, pair in nodes.items():
            if node not in place and all(source in place for _, source in pair):
                ready[node] = in_order(tuple((op, place[source]) for op, source in pair))
        first = min(ready.values())
        tied = {readers[node]: node for node, edges in ready.items() if edges == first}
        return min(finished(place | {node: len(place)}, so_far + first) for node in tied.values())

    return finished({0: 0, 1: 1}, ())


def _published(normal: str, normal_concat: str, reduce: str, reduce_concat: str) -> Genotype:
    cells = [[[op, int(source)] for op, source in map(str.split, cell.split(","))] for cell in (normal, reduce)]
    concats = [[int(node) for node in concat.split()] for concat in (normal_concat, reduce_concat)]
    return Genotype(*_cell("normal", cells[0], concats[0]), *_cell("reduce", cells[1], concats[1]))


GENOTYPES = {
    "NASNet": _published(
        "sep_conv_5x5 1, sep_conv_3x3 0, sep_conv_5x5 0, sep_conv_3x3 0, avg_pool_3x3 1, "
        "skip_connect 0, avg_pool_3x3 0, avg_pool_3x3 0, sep_conv_3x3 1, skip_connect 1",
        "2 3 4 5 6",
        "sep_conv_5x5 1, sep_conv_7x7 0, max_pool_3x3 1, sep_conv_7x7 0, avg_pool_3x3 1, "
        "sep_conv_5x5 0, skip_connect 3, avg_pool_3x3 2, sep_conv_3x3 2, max_pool_3x3 1",
        "4 5 6",
    ),
    "AmoebaNet": _published(
        "avg_pool_3x3 0, max_pool_3x3 1, sep_conv_3x3 0, sep_conv_5x5 2, sep_conv_3x3 0, "
        "avg_pool_3x3 3, sep_conv_3x3 1, skip_connect 1, skip_connect 0, avg_pool_3x3 1",
        "4 5 6",
        "avg_pool_3x3 0, sep_conv_3x3 1, max_pool_3x3 0, sep_conv_7x7 2, sep_conv_7x7 0, "
        "avg_pool_3x3 1, max_pool_3x3 0, max_pool_3x3 1, conv_7x1_1x7 0, sep_conv_3x3 5",
        "3 4 6",
    ),
    "ENAS": _published(
        "sep_conv_3x3 1, skip_connect 1, sep_conv_5x5 1, skip_connect 0, avg_pool_3x3 0, "
        "sep_conv_3x3 1, sep_conv_3x3 0, avg_pool_3x3 1, sep_conv_5x5 1, avg_pool_3x3 0",
        "2 3 4 5 6",
        "sep_conv_5x5 0, avg_pool_3x3 1, sep_conv_3x3 1, avg_pool_3x3 1, sep_conv_3x3 1, "
        "avg_pool_3x3 1, sep_conv_5x5 4, avg_pool_3x3 1, sep_conv_3x3 5, sep_conv_5x5 0",
        "2 3 6",
    ),
    "DARTS_V1": _published(
        "sep_conv_3x3 1, sep_conv_3x3 0, skip_connect 0, sep_conv_3x3 1, "
        "skip_connect 0, sep_conv_3x3 1, sep_conv_3x3 0, skip_connect 2",
        "2 3 4 5",
        "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 0, "
        "max_pool_3x3 0, skip_connect 2, skip_connect 2, avg_pool_3x3 0",
        "2 3 4 5",
    ),
    "DARTS_V2": _published(
        "sep_conv_3x3 0, sep_conv_3x3 1, sep_conv_3x3 0, sep_conv_3x3 1, "
        "sep_conv_3x3 1, skip_connect 0, skip_connect 0, dil_conv_3x3 2",
        "2 3 4 5",
        "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 1, "
        "max_pool_3x3 0, skip_connect 2, skip_connect 2, max_pool_3x3 1",
        "2 3 4 5",
    ),
    "SNAS": _published(
        "sep_conv_3x3 0, sep_conv_3x3 1, skip_connect 0, dil_conv_3x3 1, "
        "skip_connect 0, skip_connect 1, skip_connect 0, sep_conv_3x3 1",
        "2 3 4 5",
        "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 1, "
        "max_pool_3x3 1, skip_connect 2, dil_conv_5x5 2, max_pool_3x3 0",
        "2 3 4 5",
    ),
}
"""NASNet-A (Zoph et al. 2018), AmoebaNet-A (Real et al. 2019), DARTS of first and second order: as in the DARTS code;
ENAS (Pham et al. 2018) and SNAS under mild constraint (Xie et al. 2019): as in the code of Shu, Wang, Cai 2020
(arXiv:1909.09569). NASI's cells are published only as a picture."""
