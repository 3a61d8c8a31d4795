"""An op that takes parts of parameters that it shares with larger ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from epochzero.plan.ops.base import Jet, Kind, Op, Param
from epochzero.types import Shape

Ranges = tuple[tuple[int, int], ...]
"""places along an axis: from, up to but not including; in ascending order"""
Places = tuple[Ranges, ...]
"""of a part of a parameter: along each axis"""
Region = tuple[slice, ...]


def length(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def first(shape: Shape) -> Places:
    """The places of a parameter of this shape in a larger one: the first along each axis."""
    return tuple(((0, size),) for size in shape)


def taken(whole: Tensor, places: Places) -> Tensor:
    """The part, for autograd to see."""
    for axis, ranges in enumerate(places):
        pieces = [whole.narrow(axis, start, stop - start) for start, stop in ranges]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, axis)
    return whole


def regions(places: Places) -> Iterator[tuple[Region, Region]]:
    """Where each rectangle of a part lies in the whole, and in the part."""
    axes = [list(zip(ranges, _packed(ranges), strict=True)) for ranges in places]
    for corner in itertools.product(*axes):
        yield tuple(slice(*there) for there, _ in corner), tuple(slice(*here) for _, here in corner)


def _packed(ranges: Ranges) -> Iterator[tuple[int, int]]:
    start = 0
    for a, b in ranges:
        yield start, start + b - a
        start += b - a


@dataclass(frozen=True, slots=True)
class Sliced(Op):
    """An op with parts of its parameters in place of the whole ones."""

    op: Op
    whole: tuple[Shape, ...]
    """the shapes of its parameters, of which it takes parts"""
    places: tuple[Places, ...]

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.op.kind

    @property
    def linear(self) -> bool:  # type: ignore[override]
        return self.op.linear

    def shape(self, *inputs: Shape) -> Shape:
        return self.op.shape(*inputs)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        own = self.op.params(*inputs)
        for (name, param), places in zip(own.items(), self.places, strict=True):
            if param.shape != tuple(map(length, places)):
                raise ValueError(f"{self.op} has {name!r} of shape {param.shape}, and the part of it is another")
        return {name: replace(own[name], shape=shape) for name, shape in zip(own, self.whole, strict=True)}

    def macs(self, *inputs: Shape) -> int:
        return self.op.macs(*inputs)

    def _parts(self, w: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(taken(whole, places).contiguous() for whole, places in zip(w, self.places, strict=True))

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return self.op.run(x, self._parts(w))

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return self.op.jet(x, self._parts(w))

    def label(self) -> str:
        return self.op.label()
