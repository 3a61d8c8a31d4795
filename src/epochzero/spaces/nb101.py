r"""NAS-Bench-101: one cell of at most 7 vertices and 9 edges, an operation at each vertex between input and output.

    conv1x1:0/conv3x3:0/conv3x3:0/conv3x3:3/maxpool3x3:0/output:1245      vertex 1, 2, ... and what feeds it

The input is vertex 0 and the output is the last. A vertex applies its operation to the sum of its sources; the output
concatenates the channels of its sources. Every edge from the input is a 1x1 convolution, batch norm and ReLU of its
own; one from the input to the output is added to the concatenation. The output's C channels are divided among its k
source vertices, C // k each and one more to the first C mod k; any other vertex is as wide as its widest target, and a
source that is wider than its target loses its last channel. The network has a stem of 128 channels, then three stages
of three cells with 128, 256 and 512 channels, max pooling between stages, global pooling, classifier.

Vertices on no path from input to output do nothing and are removed; the architecture is the rest. There are 1,293,208
such cells with ordered vertices; 423,624 when cells that differ only in that order are merged (`key`). Such twins are
the same network, unless the extra channel goes to another vertex: of 3,000 random cells, 12 % have twins of other
sizes, up to 1.1 % apart. So a key may merge a cell that fits a budget with one that does not.

Neighbourhood is not mutual here, since removing an edge may remove vertices, so a walk from neighbour to neighbour
would favour small cells. If a budget leaves few cells, they are listed and sampled from the list (`within`).

Ying, Klein, Real, Christiansen, Murphy, Hutter. NAS-Bench-101: towards reproducible neural architecture search.
ICML 2019. arXiv:1902.09635
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Literal

from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool, MaxPool
from epochzero.plan.ops.wiring import Add, Concat, Narrow
from epochzero.registry import spaces
from epochzero.spaces import nb101_size
from epochzero.spaces.base import replaced
from epochzero.spaces.budget import Budget, Size
from epochzero.spaces.nb101_cell import (
    CELLS,
    EDGES,
    OFFICIAL,
    OPS,
    STAGES,
    VERTICES,
    Cell,
    pruned,
    read,
    topologies,
    twins,
    usable,
    weights,
    widths,
    written,
)
from epochzero.spaces.nb201 import Block, check_task
from epochzero.types import Shape

NORM, RELU, SUM, JOIN = BatchNorm(momentum=0.003), ReLU(), Add(), Concat()
POOL, HALVE = MaxPool(3, 1, padding=1), MaxPool(2, 2)


@dataclass(frozen=True)
class NB101:
    """The cells of NAS-Bench-101."""

    stem: int = 128
    """channels of the stem and the first stage; 16 in some papers that score cells"""
    cell_block: str = "cell0"

    @property
    def name(self) -> str:
        return "nb101" if self.stem == NB101.stem else f"nb101_stem{self.stem}"

    def parse(self, text: str) -> Cell:
        """Returns the architecture of a text in any form of `read`, without its idle vertices."""
        return usable(read(text, self.name), text)

    def text(self, arch: Cell) -> str:
        return written(arch)

    def matrix(self, arch: Cell) -> tuple[list[list[int]], list[str]]:
        """Returns the adjacency matrix and the operations in the form of the benchmark's own code."""
        into = ((), *arch.sources)
        rows = [[int(vertex in sources) for sources in into] for vertex in range(len(into))]
        return rows, ["input", *(OFFICIAL[op] for op in arch.ops), "output"]

    def key(self, arch: Cell) -> str:
        """Returns the benchmark's own hash, which cells share if they differ only in the order of their vertices.

        Each vertex starts with its degrees and operation, and then hashes its neighbours' values, V times.
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
        """Returns the number of cells, counting cells that differ only in the order of vertices once."""
        return 423_624

    def __iter__(self) -> Iterator[Cell]:
        """Each of the 423,624 cells once, in its first order of vertices."""
        for sources in topologies():
            for ops in itertools.product(OPS, repeat=len(sources) - 1):
                cell = Cell(ops, sources)
                if cell == min(twins(cell)):
                    yield cell

    def sample(self, rng: Random, scheme: Literal["cells", "naslib"] = "cells") -> Cell:
        """Draws uniformly from the 423,624 cells, and from the orders of the vertices of each.

        An ordered cell is drawn uniformly and kept with probability 1 / (number of its twins, including itself).

        With `naslib`, as in NASLib and the benchmark's own examples: each of the 21 possible edges of seven vertices
        with probability 1/2 and each operation uniformly, until the result is a cell. Small cells, and cells with many
        orders, are more frequent.
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

    def mutate(self, arch: Cell, rng: Random) -> Cell:
        return rng.choice(self.neighbours(arch))

    def neighbours(self, arch: Cell) -> list[Cell]:
        """Returns the cells with one operation changed, one edge added or removed, or one vertex with two edges added.

        Vertices that become idle are removed. The new vertex may lead from any vertex to any later one.
        """
        others = [Cell(replaced(arch.ops, i, op), arch.sources) for i in range(len(arch.ops)) for op in OPS]
        room = EDGES - arch.edges
        for i, sources in enumerate(arch.sources):
            for u in range(i + 1):
                if u in sources:
                    fewer = tuple(v for v in sources if v != u)
                    others.append(pruned(Cell(arch.ops, replaced(arch.sources, i, fewer))) or arch)
                elif room >= 1:
                    others.append(Cell(arch.ops, replaced(arch.sources, i, tuple(sorted((*sources, u))))))
        last = len(arch.sources)
        if room >= 2 and last + 1 < VERTICES:
            pairs = itertools.combinations(range(last + 1), 2)
            others += [_with_vertex(arch, op, u, w) for (u, w) in pairs for op in OPS]
        return [cell for cell in dict.fromkeys(others) if cell != arch]

    def smallest(self) -> Cell:
        """Returns the cell with one narrow projection of the input: a pool that feeds three more."""
        return Cell(("maxpool3x3",) * 4, ((0,), (1,), (1,), (1,), (1, 2, 3, 4)))

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        """Returns the network of a cell, for images whose sides are multiples of four."""
        check_task(self.name, num_classes, input_shape)
        stem = _conv(self.stem, 3, input_shape)
        return skeleton(stem, partial(_cell, arch), num_classes, input_shape)

    def size(self, arch: Cell, num_classes: int, input_shape: Shape) -> Size:
        check_task(self.name, num_classes, input_shape)
        return nb101_size.size(arch, self.stem, num_classes, input_shape)

    def within(self, budget: Budget, num_classes: int, input_shape: Shape) -> Callable[[Random], Cell]:
        """Returns a sampler like `sample`, conditioned on the budget, from a list of all ordered cells that fit.

        It is uniform over the cells that fit; a cell of which only some orders fit is proportionally less frequent.
        """
        check_task(self.name, num_classes, input_shape)
        fitting = list(nb101_size.fitting(budget, self.stem, num_classes, input_shape))

        def drawn(rng: Random) -> Cell:
            while True:
                cell = rng.choice(fitting)
                if rng.random() * len(twins(cell)) < 1:
                    return cell

        return drawn


def skeleton(
    stem: Plan, block: Block, num_classes: int, input_shape: Shape, cells: int = CELLS, vectors: Mapping[str, int] = {}
) -> Plan:
    """The network of any cell, which may also read input vectors of these names and lengths."""
    net = Builder()
    image = net.input(input_shape)
    weights = [net.input((length,), name) for name, length in vectors.items()]
    x = net.inline(stem, image, name="stem")
    for stage in range(STAGES):
        if stage:
            x = net.add(HALVE, x, name=f"halve{stage}")
        for i in range(cells):
            cell = block(stem.output_shape[0] * 2**stage, net.shape(x))
            x = net.inline(cell, x, *weights, name=f"cell{stage * cells + i}")
    x = net.add(GlobalAvgPool(), x, name="pool")
    net.add(Linear(num_classes), x, name="linear")
    return net.plan()


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _with_vertex(cell: Cell, op: str, source: int, target: int) -> Cell:
    """Returns the cell with one more vertex, right after its source, with an edge to the target."""
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
