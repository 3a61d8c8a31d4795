r"""NAS-Bench-1Shot1: cells of NAS-Bench-101 in which every vertex has a fixed number of sources.

    conv3x3:0/conv1x1:01/maxpool3x3:02/conv3x3:13/output:24      S1: vertex 1, 2, ... and its sources

          sources of vertex       cells       without a      loose ends      of NAS-Bench-101
          1, 2, ..., output                   loose end      cut off         (keys)
    S1    1 2 2 2 2              14,580           3,078           3,702           2,685
    S2    1 1 2 2 3              29,160          11,178          12,474           7,773
    S3    1 1 1 2 2 2         1,312,200         108,135         135,900          55,854

A vertex that leads nowhere is a loose end: it is part of the cell, but not of the network, which is that of
NAS-Bench-101 without it. So there are two ways to count cells without loose ends: those that have none, and the
different ones that remain after removing them, with vertices keeping their numbers; some of those are the same cell of
NAS-Bench-101 (`key`). These counts are our own.

Zela, Siems, Hutter. NAS-Bench-1Shot1: benchmarking and dissecting one-shot neural architecture search.
ICLR 2020. arXiv:2001.10422
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures, quoted, replaced
from epochzero.spaces.budget import Size
from epochzero.spaces.nb101 import NB101
from epochzero.spaces.nb101_cell import OPS, Cell, Sources, pruned, read, written
from epochzero.types import Shape

BENCHMARK = NB101()


@dataclass(frozen=True)
class NB1Shot1(Architectures):
    """One of the three spaces."""

    name: str
    degrees: tuple[int, ...]
    """number of sources of vertex 1, 2, ..., the output last"""
    cheapest: Cell
    """a cell of pools with the fewest and narrowest projections of the input"""
    cell_block: str = "cell0"

    @property
    def about(self) -> str:
        return f"NAS-Bench-1Shot1: cells of NAS-Bench-101 whose vertices have {_listed(self.degrees)} sources"

    def parse(self, text: str) -> Cell:
        """Returns the architecture of a text in any form of `nb101_cell.read`; drops a spare vertex 5."""
        cell = read(text, self.name)
        spare = len(self.degrees)
        if len(cell.sources) == spare + 1 and not cell.sources[-2] and spare not in cell.sources[-1]:
            cell = Cell(cell.ops[:-1], (*cell.sources[:-2], cell.sources[-1]))
        degrees = tuple(map(len, cell.sources))
        if degrees != self.degrees:
            raise UserError(
                f"The vertices of {self.name} have {_listed(self.degrees)} sources, the output last; "
                f"those of {quoted(text)} have {_listed(degrees)}."
            )
        return cell

    def text(self, arch: Cell) -> str:
        return written(arch)

    def network(self, arch: Cell) -> Cell:
        """Returns the cell of NAS-Bench-101 without loose ends."""
        kept = pruned(arch)
        assert kept is not None  # vertex 1 is fed by the input, and any other has a source that is fed
        return kept

    def key(self, arch: Cell) -> str:
        """Returns the hash of NAS-Bench-101, which two cells share if they are the same network."""
        return BENCHMARK.key(self.network(arch))

    def count(self) -> int:
        return math.prod(map(len, _choices(self.degrees))) * math.prod(len(OPS) for _ in self.degrees[:-1])

    def __iter__(self) -> Iterator[Cell]:
        for wiring in itertools.product(*_choices(self.degrees)):
            for ops in itertools.product(OPS, repeat=len(wiring) - 1):
                yield Cell(ops, wiring)

    def sample(self, rng: Random) -> Cell:
        """Draws uniformly from all cells, including those with loose ends."""
        sources = tuple(rng.choice(choices) for choices in _choices(self.degrees))
        return Cell(tuple(rng.choices(OPS, k=len(sources) - 1)), sources)

    def crossover(self, one: Cell, other: Cell, rng: Random) -> Cell:
        """Takes each operation and the sources of each vertex from one of the two, uniformly."""
        ops = tuple(map(rng.choice, zip(one.ops, other.ops, strict=True)))
        return Cell(ops, tuple(map(rng.choice, zip(one.sources, other.sources, strict=True))))

    def neighbours(self, arch: Cell) -> list[Cell]:
        """Returns the cells in which one vertex has another operation, or other sources."""
        ops, sources = arch
        others = [Cell(replaced(ops, i, op), sources) for i, old in enumerate(ops) for op in OPS if op != old]
        for i, choices in enumerate(_choices(self.degrees)):
            others += [Cell(ops, replaced(sources, i, chosen)) for chosen in choices if chosen != sources[i]]
        return others

    def smallest(self) -> Cell:
        return self.cheapest

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        """Returns the network of NAS-Bench-101 with this cell."""
        return BENCHMARK.plan(self.network(arch), num_classes, input_shape)

    def size(self, arch: Cell, num_classes: int, input_shape: Shape) -> Size:
        return BENCHMARK.size(self.network(arch), num_classes, input_shape)


@lru_cache(maxsize=16)
def _choices(degrees: tuple[int, ...]) -> tuple[Sources, ...]:
    return tuple(tuple(itertools.combinations(range(v), many)) for v, many in enumerate(degrees, start=1))


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


for _number, _degrees, _sources in (
    (1, (1, 2, 2, 2, 2), ("0", "01", "01", "01", "12")),
    (2, (1, 1, 2, 2, 3), ("0", "1", "01", "12", "124")),
    (3, (1, 1, 1, 2, 2, 2), ("0", "0", "1", "01", "01", "13")),
):
    _smallest = Cell(("maxpool3x3",) * (len(_degrees) - 1), tuple(tuple(map(int, source)) for source in _sources))
    spaces.register(f"nb1shot1_s{_number}", NB1Shot1(f"nb1shot1_s{_number}", _degrees, _smallest))
