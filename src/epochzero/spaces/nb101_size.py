r"""Sizes of NAS-Bench-101 networks, and all cells that fit a budget, without planning a network.

A convolution k x k from i to o channels has k k i o weights, multiplied once at each position of the map, and its norm
has 2 o more parameters. The widths of a cell's vertices depend only on its wiring, and pools have no parameters, so

    size  =  ends  +  size of the wiring's projections  +  sum over vertices of the size of the operation there.

If a wiring with the operations of some of its vertices exceeds a budget, so does every cell that contains them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from epochzero.spaces.budget import Budget, Size
from epochzero.spaces.nb101_cell import CELLS, OPS, STAGES, Cell, Sources, topologies, widths
from epochzero.types import Shape


class Bill(NamedTuple):
    """The size of all cells of one wiring in a network together."""

    wiring: Size
    """size if every vertex is a pool"""
    vertices: tuple[dict[str, Size], ...]
    """additional size of each vertex, by its operation"""


def size(cell: Cell, stem: int, num_classes: int, shape: Shape) -> Size:
    bill = _bill(cell.sources, stem, shape)
    inner = [vertex[op] for vertex, op in zip(bill.vertices, cell.ops, strict=True)]
    return _total([_ends(stem, num_classes, shape), bill.wiring, *inner])


def fitting(budget: Budget, stem: int, num_classes: int, shape: Shape) -> Iterator[Cell]:
    """Yields every cell that fits, in every order of its vertices. More vertices never make a network smaller."""
    for sources in topologies():
        bill = _bill(sources, stem, shape)
        least = _total([_ends(stem, num_classes, shape), bill.wiring])
        begun: list[tuple[tuple[str, ...], Size]] = [((), least)] if budget.fits(least) else []
        for vertex in bill.vertices:
            more = [((*ops, op), _total([spent, vertex[op]])) for ops, spent in begun for op in OPS]
            begun = [(ops, spent) for ops, spent in more if budget.fits(spent)]
        yield from (Cell(ops, sources) for ops, _ in begun)


def _ends(stem: int, num_classes: int, shape: Shape) -> Size:
    """Returns the size of the first convolution and the classifier."""
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
    """Returns the size of a vertex in all cells together, by its operation, given its width in each stage."""
    sizes = {"maxpool3x3": Size(0, 0)}
    for op, kernel in (("conv3x3", 3), ("conv1x1", 1)):
        sizes[op] = _total([_conv(kernel, w, w, at) for w, at in zip(wide, _places(shape), strict=True)] * CELLS)
    return sizes


def _places(shape: Shape) -> list[int]:
    """Returns the number of positions of the map in each stage."""
    return [(shape[1] >> stage) * (shape[2] >> stage) for stage in range(STAGES)]


def _conv(kernel: int, given: int, out: int, places: int) -> Size:
    weights = kernel**2 * given * out
    return Size(weights + 2 * out, weights * places)


def _total(parts: list[Size]) -> Size:
    return Size(sum([part.params for part in parts]), sum([part.flops for part in parts]))
