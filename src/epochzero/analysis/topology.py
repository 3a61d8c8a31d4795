r"""Width and depth of a cell, and random variants of it.

    depth = connections on the longest path from an input to the output
    width = sum_v c_v n_v / m_v        over inner nodes v: of its m_v connections, n_v come straight from an input

A cell has inputs, inner nodes and one output, which joins inner nodes. c_v is the width of node v, taken as the same c
for all, so that width is counted in c: a node that reads inputs alone counts in full, one that reads inner nodes too in
proportion. A connection is an operation that is not cut. Nodes on no path from an input to the output do not belong to
the cell, nor do their connections: this is why AmoebaNet's cell, adapted, is 3c wide (thesis, Figure 4.26).

    darts   inputs 0 and 1; the output joins `concat`
    nb201   input 0; nodes 1, 2 and 3 sum operations, and the output is node 3 alone
    nb101   input 0; each vertex with an operation is an inner node; the output joins what feeds it, the input too

So depth is at least 2 if there is a path, except for the cell of nb101 without a vertex, whose output is its input.

Shu, Wang, Cai. Understanding architectures learnt by cell-based neural architecture search. ICLR 2020.
arXiv:1909.09569; and chapter 4 of Shu's thesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any

from epochzero.errors import UserError
from epochzero.spaces import nb101_cell, nb201
from epochzero.spaces.genotypes import GENOTYPES, SEARCHED, Cell, Genotype

KNOWN = {
    "NASNet": GENOTYPES["NASNet"],
    "AmoebaNet": GENOTYPES["AmoebaNet"],
    "ENAS": GENOTYPES["ENAS"],
    "DARTS": GENOTYPES["DARTS_V2"],
    "SNAS": GENOTYPES["SNAS"],
}
"""the five cells that the thesis studies"""


@dataclass(frozen=True)
class Topology:
    """The connections of a cell, without their operations."""

    inputs: int
    """nodes 0, ..., inputs - 1"""
    sources: tuple[tuple[int, ...], ...]
    """sources of each inner node, once for each connection"""
    output: tuple[int, ...]
    """nodes that the output joins"""

    @cached_property
    def alive(self) -> frozenset[int]:
        """The inner nodes that lie on a path from an input to the output."""
        fed = set(range(self.inputs))
        for node, sources in self._nodes:
            if fed.intersection(sources):
                fed.add(node)
        wanted = set(self.output)
        for node, sources in reversed(self._nodes):
            if node in wanted:
                wanted.update(sources)
        return frozenset((fed & wanted) - set(range(self.inputs)))

    @property
    def width(self) -> float:
        """In units of c."""
        total = Fraction(0)
        for node, sources in self._nodes:
            if node in self.alive:
                living = self._living(sources)
                total += Fraction(sum(source < self.inputs for source in living), len(living))
        return float(total)

    @property
    def depth(self) -> int:
        """0 where no path leads from an input to the output."""
        longest = dict.fromkeys(range(self.inputs), 0)
        for node, sources in self._nodes:
            if node in self.alive:
                longest[node] = 1 + max(longest[source] for source in self._living(sources))
        return max((1 + longest[node] for node in self.output if node in longest), default=0)

    @property
    def _nodes(self) -> list[tuple[int, tuple[int, ...]]]:
        return list(enumerate(self.sources, start=self.inputs))

    def _living(self, sources: tuple[int, ...]) -> list[int]:
        return [source for source in sources if source < self.inputs or source in self.alive]


def of_cell(cell: Cell, concat: tuple[int, ...]) -> Topology:
    """Of a cell of DARTS, NASNet or AmoebaNet."""
    nodes = zip(cell[::2], cell[1::2], strict=True)
    sources = tuple(tuple(source for op, source in edges if op != "none") for edges in nodes)
    return Topology(2, sources, concat)


def of_nb201(arch: tuple[str, ...]) -> Topology:
    """Of a cell of NAS-Bench-201."""
    edges = [edge for edge, op in zip(nb201.EDGES, arch, strict=True) if op != "none"]
    return Topology(1, tuple(tuple(source for to, source in edges if to == node) for node in (1, 2, 3)), (3,))


def of_nb101(arch: nb101_cell.Cell) -> Topology:
    """Of a cell of NAS-Bench-101."""
    *inner, output = arch.sources
    return Topology(1, tuple(inner), output)


def topologies(arch: Any) -> dict[str, Topology]:
    """The cells of an architecture by name: a genotype has a normal and a reduction cell."""
    if isinstance(arch, Genotype):
        return {
            "normal": of_cell(arch.normal, arch.normal_concat),
            "reduction": of_cell(arch.reduce, arch.reduce_concat),
        }
    if isinstance(arch, nb101_cell.Cell):
        return {"cell": of_nb101(arch)}
    if isinstance(arch, tuple) and len(arch) == len(nb201.EDGES) and set(arch) <= set(nb201.OPS):
        return {"cell": of_nb201(arch)}
    raise UserError("Width and depth are defined for cells of darts, nb201, nb101 and their kin, not for this space.")


def random_connections(arch: Any, rng: Random) -> Any:
    """The same operations in the same order, each reading a random node before its own (thesis, appendix A.1.2).

    Of a genotype the normal cell changes, and an operation may get any node, also that of its neighbour, as in NASNet's
    cells. In nb201 and nb101 a node reads as many nodes as before, all different; in nb101 so does the output, and all
    vertices stay on a path.
    """
    if isinstance(arch, Genotype):
        return arch._replace(normal=tuple((op, rng.randrange(i // 2 + 2)) for i, (op, _) in enumerate(arch.normal)))
    if isinstance(arch, nb101_cell.Cell):
        return _reconnected_nb101(arch, rng)
    topologies(arch)
    return _reconnected_nb201(arch, rng)


def random_operations(arch: Any, rng: Random) -> Any:
    """The same connections, each with a random operation (thesis, appendix A.1.2); of a genotype in its normal cell."""
    if isinstance(arch, Genotype):
        return arch._replace(normal=tuple((rng.choice(SEARCHED), source) for _, source in arch.normal))
    if isinstance(arch, nb101_cell.Cell):
        return arch._replace(ops=tuple(rng.choice(nb101_cell.OPS) for _ in arch.ops))
    topologies(arch)
    return tuple(op if op == "none" else rng.choice(nb201.OPS[1:]) for op in arch)


def _reconnected_nb201(arch: tuple[str, ...], rng: Random) -> tuple[str, ...]:
    ops_by_edge = dict.fromkeys(nb201.EDGES, "none")
    for node in (1, 2, 3):
        ops = [op for (to, _), op in zip(nb201.EDGES, arch, strict=True) if to == node and op != "none"]
        for op, source in zip(ops, sorted(rng.sample(range(node), len(ops))), strict=True):
            ops_by_edge[node, source] = op
    return tuple(ops_by_edge.values())


def _reconnected_nb101(arch: nb101_cell.Cell, rng: Random) -> nb101_cell.Cell:
    while True:
        sources = (sorted(rng.sample(range(v), len(old))) for v, old in enumerate(arch.sources, start=1))
        cell = arch._replace(sources=tuple(map(tuple, sources)))
        if nb101_cell.pruned(cell) == cell:
            return cell


def rewired(arch: Genotype, sources: Callable[[int], tuple[int, int]]) -> Genotype:
    """The genotype with other sources for the nodes of both cells, and the same operations."""

    def cell(old: Cell) -> Cell:
        return tuple((op, sources(i // 2 + 2)[i % 2]) for i, (op, _) in enumerate(old))

    return arch._replace(normal=cell(arch.normal), reduce=cell(arch.reduce))


def widest(arch: Genotype) -> Genotype:
    """Adapted as in the thesis' Table 4.1: every node of both cells reads the two inputs, as those of SNAS do."""
    return rewired(arch, lambda node: (0, 1))


def deepest(arch: Genotype) -> Genotype:
    """Every node of both cells reads the two nodes before it: the longest chain of different sources, 1.5c wide."""
    return rewired(arch, lambda node: (node - 2, node - 1))


CELLS = KNOWN | {"WIDE": widest(KNOWN["DARTS"]), "DEEP": deepest(KNOWN["DARTS"])}
"""with the widest and the deepest cell of the thesis' Table 7.2, here with the operations of DARTS"""
