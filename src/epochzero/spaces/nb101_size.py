r"""How large the networks of NAS-Bench-101 are, and all cells that fit a budget, without planning a network.

A convolution k x k from i to o channels has k k i o weights, multiplied once at each place of the map, and its norm has
2 o parameters more. The widths of a cell's vertices follow from its wiring alone and pools weigh nothing, so

    size  =  ends  +  what the wiring's projections weigh  +  sum over vertices of what the operation weighs there.

Where a wiring and the operations of some of its vertices are more than a budget allows, so is every cell that has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from epochzero.spaces.budget import Budget, Size
from epochzero.spaces.nb101_cell import CELLS, OPS, STAGES, Cell, Sources, topologies, widths
from epochzero.types import Shape


class Bill(NamedTuple):
    """What the cells of one wiring weigh in a network, all together."""

    wiring: Size
    """where every vertex is a pool"""
    vertices: tuple[dict[str, Size], ...]
    """what each vertex adds, by its operation"""


def size(cell: Cell, stem: int, num_classes: int, shape: Shape) -> Size:
    """Parameters and multiply-accumulates of a network."""
    bill = _bill(cell.sources, stem, shape)
    inner = [vertex[op] for vertex, op in zip(bill.vertices, cell.ops, strict=True)]
    return _total([_ends(stem, num_classes, shape), bill.wiring, *inner])


def fitting(budget: Budget, stem: int, num_classes: int, shape: Shape) -> Iterator[Cell]:
    """Every cell that fits, in every order of its vertices. A vertex more never weighs less than none."""
    for sources in topologies():
        bill = _bill(sources, stem, shape)
        least = _total([_ends(stem, num_classes, shape), bill.wiring])
        begun: list[tuple[tuple[str, ...], Size]] = [((), least)] if budget.fits(least) else []
        for vertex in bill.vertices:
            more = [((*ops, op), _total([spent, vertex[op]])) for ops, spent in begun for op in OPS]
            begun = [(ops, spent) for ops, spent in more if budget.fits(spent)]
        yield from (Cell(ops, sources) for ops, _ in begun)


def _ends(stem: int, num_classes: int, shape: Shape) -> Size:
    """The first convolution and the classifier."""
    first, last = _conv(3, shape[0], stem, shape[1] * shape[2]), (stem << STAGES - 1) * num_classes
    return Size(first.params + last + num_classes, first.flops + last)


@lru_cache(maxsize=8192)
def _bill(sources: Sources, stem: int, shape: Shape) -> Bill:
    outs = [stem << stage for stage in range(STAGES)]
    inner = [widths(sources, out) for out in outs]
    wiring = []
    for given, out, wide, places in zip((stem, *outs), outs, inner, _places(shape), strict=False):
        projected = sum([wide.get(v, out) for v, into in enumerate(sources, start=1) if 0 in into])
        wiring += [_conv(1, given, projected, places), *[_conv(1, out, projected, places)] * (CELLS - 1)]
    vertices = [_vertex(tuple([wide[v] for wide in inner]), shape) for v in range(1, len(sources))]
    return Bill(_total(wiring), tuple(vertices))


@lru_cache(maxsize=1024)
def _vertex(wide: tuple[int, ...], shape: Shape) -> dict[str, Size]:
    """What a vertex of these widths in the stages weighs in all cells together, by its operation."""
    found = {"maxpool3x3": Size(0, 0)}
    for op, kernel in (("conv3x3", 3), ("conv1x1", 1)):
        found[op] = _total([_conv(kernel, w, w, at) for w, at in zip(wide, _places(shape), strict=True)] * CELLS)
    return found


def _places(shape: Shape) -> list[int]:
    """How many places the map has in each stage."""
    return [(shape[1] >> stage) * (shape[2] >> stage) for stage in range(STAGES)]


def _conv(kernel: int, given: int, out: int, places: int) -> Size:
    """A convolution and its norm."""
    weights = kernel**2 * given * out
    return Size(weights + 2 * out, weights * places)


def _total(parts: list[Size]) -> Size:
    return Size(sum([part.params for part in parts]), sum([part.flops for part in parts]))
