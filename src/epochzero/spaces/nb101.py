r"""NAS-Bench-101: one cell of at most 7 vertices and 9 edges, an operation at each vertex between input and output.

    conv1x1:0/conv3x3:0/conv3x3:0/conv3x3:3/maxpool3x3:0/output:1245      vertex 1, 2, ... and what feeds it

The input is vertex 0 and the output the last. A vertex applies its operation to the sum of what feeds it; the output
joins the channels of what feeds it. Every edge from the input is a 1x1 convolution, batch norm and ReLU of its own; one
that goes straight to the output is added to what is joined. The output's C channels are dealt to the k vertices that
feed it, C // k each and one more to the first C mod k; any other vertex is as wide as the widest that it feeds, and a
source that is wider than its target loses its last channel. The network: a stem of 128 channels, then three stages of
three cells with 128, 256 and 512 channels, max pooling between stages; global pooling, classifier.

Vertices on no path from input to output do nothing and are cut off: an architecture is what is left. There are
1,293,208 such cells whose vertices stand in some order; 423,624 once cells that differ in that order alone are joined
(`key`). Such twins are the same network, unless the extra channel goes to another vertex: of 3,000 random cells, 12 %
have twins of other sizes, up to 1.1 % apart. So a key may join a cell that fits a budget with one that does not.

Being a neighbour is not mutual here, since a lost edge may take vertices with it, so that a walk from neighbour to
neighbour would favour small cells. Where a budget leaves few cells, they are listed and drawn from (`within`).

Ying, Klein, Real, Christiansen, Murphy, Hutter. NAS-Bench-101: towards reproducible neural architecture search.
ICML 2019. arXiv:1902.09635
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Literal, TypeVar

from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool, MaxPool
from epochzero.plan.ops.wiring import Add, Concat, Narrow
from epochzero.registry import spaces
from epochzero.spaces import nb101_size
from epochzero.spaces.budget import Budget, Size
from epochzero.spaces.nb101_cell import (
    CELLS,
    EDGES,
    OFFICIAL,
    OPS,
    STAGES,
    VERTICES,
    Cell,
    graph,
    pruned,
    read,
    topologies,
    twins,
    usable,
    weights,
    widths,
    written,
)
from epochzero.spaces.nb201 import check_task
from epochzero.types import Shape

T = TypeVar("T")

NORM, RELU, SUM, JOIN = BatchNorm(momentum=0.003), ReLU(), Add(), Concat()
POOL, HALVE = MaxPool(3, 1, padding=1), MaxPool(2, 2)


@dataclass(frozen=True)
class NB101:
    """The cells of NAS-Bench-101."""

    stem: int = 128
    """channels of the stem and the first stage; some score the cells in networks of 16"""
    cell_block: str = "cell0"

    @property
    def name(self) -> str:
        return "nb101" if self.stem == NB101.stem else f"nb101_stem{self.stem}"

    def parse(self, text: str) -> Cell:
        """The architecture that a text stands for, in any form of `read`, without its idle vertices."""
        return usable(read(text, self.name), text)

    def text(self, arch: Cell) -> str:
        """A vertex after the other, as operation and sources; `parse` inverts it."""
        return written(arch)

    def from_matrix(self, matrix: Sequence[Sequence[int]], ops: Sequence[str | int]) -> Cell:
        """The architecture of an adjacency matrix and the operations' names, or zero-cost-nas' numbers for them."""
        return usable(graph(matrix, ops), str([list(row) for row in matrix]))

    def matrix(self, arch: Cell) -> tuple[list[list[int]], list[str]]:
        """The adjacency matrix and the operations as the benchmark's own code wants them."""
        into = ((), *arch.sources)
        rows = [[int(vertex in sources) for sources in into] for vertex in range(len(into))]
        return rows, ["input", *(OFFICIAL[op] for op in arch.ops), "output"]

    def key(self, arch: Cell) -> str:
        """The benchmark's own hash, which two cells share when they differ in the order of their vertices alone.

        Each vertex starts from its degrees and operation, and then takes in what its neighbours have, V times.
        """
        into = ((), *arch.sources)
        out_of = [[w for w, sources in enumerate(into) if v in sources] for v in range(len(into))]
        labels = (-1, *(OPS.index(op) for op in arch.ops), -2)
        known = [_md5(str((len(out_of[v]), len(into[v]), label))) for v, label in enumerate(labels)]
        for _ in labels:
            before = ["".join(sorted([known[u] for u in sources])) for sources in into]
            after = ["".join(sorted([known[w] for w in targets])) for targets in out_of]
            known = [_md5("|".join(parts)) for parts in zip(before, after, known, strict=True)]
        return _md5(str(sorted(known)))

    def count(self) -> int:
        """How many cells there are, those that differ in the order of their vertices alone counted once."""
        return 423_624

    def __iter__(self) -> Iterator[Cell]:
        """Each of the 423,624 once, in the order of vertices that comes first."""
        for sources in topologies():
            for ops in itertools.product(OPS, repeat=len(sources) - 1):
                cell = Cell(ops, sources)
                if cell == min(twins(cell)):
                    yield cell

    def sample(self, rng: Random, scheme: Literal["cells", "naslib"] = "cells") -> Cell:
        """Uniform over the 423,624 cells, and over the orders of the vertices of each.

        An ordered cell is drawn uniformly and kept with one chance in as many as it has twins, itself included.

        With `naslib`, as NASLib and the benchmark's own examples do it: each of the 21 possible edges of seven
        vertices with probability 1/2 and each operation uniformly, until that makes a cell. Small cells, and cells
        with many orders, come more often.
        """
        while True:
            if scheme == "naslib":
                every = tuple(tuple(u for u in range(v) if rng.random() < 0.5) for v in range(1, VERTICES))
                cell = pruned(Cell(tuple(rng.choices(OPS, k=VERTICES - 2)), every))
                if cell is not None and cell.edges <= EDGES:
                    return cell
            else:
                (sources,) = rng.choices(topologies(), cum_weights=weights())
                cell = Cell(tuple(rng.choices(OPS, k=len(sources) - 1)), sources)
                if rng.random() * len(twins(cell)) < 1:
                    return cell

    def mutate(self, arch: Cell, rng: Random, scheme: Literal["neighbour", "naslib"] = "neighbour") -> Cell:
        """Uniform over the neighbours.

        With `naslib`, as NASLib does it: among seven vertices, the unused ones standing before the output, each
        possible edge is flipped with probability 1/7 and each operation becomes another with probability 1/3, until
        that makes a cell. It may be the same one again.
        """
        if scheme == "neighbour":
            return rng.choice(self.neighbours(arch))
        idle = VERTICES - 1 - len(arch.sources)
        inner, output = arch.sources[:-1] + ((),) * idle, arch.sources[-1]
        while True:
            flipped = (
                tuple(u for u in range(v) if (u in sources) != (rng.random() < 1 / VERTICES))
                for v, sources in enumerate((*inner, output), start=1)
            )
            ops = (
                rng.choice([other for other in OPS if other != op]) if rng.random() < 1 / len(OPS) else op
                for op in arch.ops + OPS[:1] * idle
            )
            cell = pruned(Cell(tuple(ops), tuple(flipped)))
            if cell is not None and cell.edges <= EDGES:
                return cell

    def neighbours(self, arch: Cell) -> list[Cell]:
        """Cells with one operation changed, one edge more, one edge less, or one more vertex on an edge in and out.

        What an edge less leaves idle goes with it. The new vertex may go from any vertex to any later one.
        """
        found = [Cell(_with(arch.ops, i, op), arch.sources) for i in range(len(arch.ops)) for op in OPS]
        room = EDGES - arch.edges
        for i, sources in enumerate(arch.sources):
            for u in range(i + 1):
                if u in sources:
                    fewer = tuple(v for v in sources if v != u)
                    found.append(pruned(Cell(arch.ops, _with(arch.sources, i, fewer))) or arch)
                elif room >= 1:
                    found.append(Cell(arch.ops, _with(arch.sources, i, tuple(sorted((*sources, u))))))
        last = len(arch.sources)
        if room >= 2 and last + 1 < VERTICES:
            pairs = itertools.combinations(range(last + 1), 2)
            found += [_with_vertex(arch, op, u, w) for (u, w) in pairs for op in OPS]
        return [cell for cell in dict.fromkeys(found) if cell != arch]

    def smallest(self) -> Cell:
        """All the input's channels go through one narrow projection: a pool that feeds three more."""
        return Cell(("maxpool3x3",) * 4, ((0,), (1,), (1,), (1,), (1, 2, 3, 4)))

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        """The whole network of a cell; its two halvings want images whose sides are multiples of four."""
        check_task(self.name, num_classes, input_shape)
        net = Builder()
        x = net.inline(_conv(self.stem, 3, input_shape), net.input(input_shape), name="stem")
        for stage in range(STAGES):
            if stage:
                x = net.add(HALVE, x, name=f"halve{stage}")
            for i in range(CELLS):
                cell = _cell(arch, self.stem * 2**stage, net.shape(x))
                x = net.inline(cell, x, name=f"cell{stage * CELLS + i}")
        x = net.add(GlobalAvgPool(), x, name="pool")
        net.add(Linear(num_classes), x, name="linear")
        return net.plan()

    def size(self, arch: Cell, num_classes: int, input_shape: Shape) -> Size:
        """The plan's parameters and multiply-accumulates, without the plan."""
        check_task(self.name, num_classes, input_shape)
        return nb101_size.size(arch, self.stem, num_classes, input_shape)

    def within(self, budget: Budget, num_classes: int, input_shape: Shape) -> Callable[[Random], Cell]:
        """Draws as `sample` does, given that it fits: from a list of all that fit, each order of each cell once.

        So it is uniform over the cells that fit; one of which some orders alone fit comes as much less often.
        """
        check_task(self.name, num_classes, input_shape)
        found = list(nb101_size.fitting(budget, self.stem, num_classes, input_shape))

        def drawn(rng: Random) -> Cell:
            while True:
                cell = rng.choice(found)
                if rng.random() * len(twins(cell)) < 1:
                    return cell

        return drawn


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _with_vertex(cell: Cell, op: str, source: int, target: int) -> Cell:
    """One more vertex, right after its source, on a way from there to the target."""
    moved = [tuple(u + (u > source) for u in sources) for sources in cell.sources]
    moved[target - 1] = tuple(sorted((*moved[target - 1], source + 1)))
    moved.insert(source, (source,))
    return Cell((*cell.ops[:source], op, *cell.ops[source:]), tuple(moved))


@lru_cache(maxsize=4096)
def _conv(width: int, kernel: int, shape: Shape) -> Plan:
    return chain(shape, conv=Conv(width, kernel, padding=kernel // 2), norm=NORM, relu=RELU)


@lru_cache(maxsize=256)
def _cell(cell: Cell, width: int, shape: Shape) -> Plan:
    net = Builder()
    values = [net.input(shape)]
    wide = widths(cell.sources, width)
    for vertex, (op, sources) in enumerate(zip(cell.ops, cell.sources[:-1], strict=True), start=1):
        terms = []
        for source in sources:
            if source == 0:
                terms.append(net.inline(_conv(wide[vertex], 1, shape), values[0], name=f"project{vertex}"))
            elif wide[source] > wide[vertex]:
                terms.append(net.add(Narrow(wide[vertex]), values[source], name=f"cut{source}{vertex}"))
            else:
                terms.append(values[source])
        x = terms[0] if len(terms) == 1 else net.add(SUM, *terms, name=f"sum{vertex}")
        if op == "maxpool3x3":
            values.append(net.add(POOL, x, name=f"vertex{vertex}"))
        else:
            kernel = 3 if op == "conv3x3" else 1
            values.append(net.inline(_conv(wide[vertex], kernel, net.shape(x)), x, name=f"vertex{vertex}"))
    joined = [values[source] for source in cell.sources[-1] if source]
    terms = joined if len(joined) < 2 else [net.add(JOIN, *joined, name="join")]
    if 0 in cell.sources[-1]:
        terms = [*terms, net.inline(_conv(width, 1, shape), values[0], name="project_output")]
    if len(terms) > 1:
        net.add(SUM, *terms, name="sum_output")
    return net.plan()


for _space in (NB101(), NB101(stem=16)):
    spaces.register(_space.name, _space)
