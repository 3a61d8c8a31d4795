"""Parts of parameters that a network shares with a larger one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from epochzero.types import Shape

Ranges = tuple[tuple[int, int], ...]
"""ranges along an axis: start and end (exclusive), ascending"""
Places = tuple[Ranges, ...]
"""a part of a parameter: the ranges along each axis"""
Region = tuple[slice, ...]


def length(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def first(shape: Shape) -> Places:
    """Returns the places of a parameter of this shape at the start of each axis of a larger one."""
    return tuple(((0, size),) for size in shape)


def taken(whole: Tensor, places: Places) -> Tensor:
    """Returns the part, differentiably."""
    for axis, ranges in enumerate(places):
        pieces = [whole.narrow(axis, start, stop - start) for start, stop in ranges]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, axis)
    return whole


def regions(places: Places) -> Iterator[tuple[Region, Region]]:
    """Yields each rectangle of a part: its region in the whole, and in the part."""
    axes = [list(zip(ranges, _packed(ranges), strict=True)) for ranges in places]
    for corner in itertools.product(*axes):
        yield tuple(slice(*there) for there, _ in corner), tuple(slice(*here) for _, here in corner)


def _packed(ranges: Ranges) -> Iterator[tuple[int, int]]:
    start = 0
    for a, b in ranges:
        yield start, start + b - a
        start += b - a
