"""The structure of a network: its layers, with the convolutions and linear layers on the paths to each.

A cut edge (a layer that gives zeros) ends a path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from epochzero.types import Shape

if TYPE_CHECKING:
    from epochzero.plan import Plan

WEIGHTED = ("conv", "linear")


class Paths(NamedTuple):
    """The fewest and the most convolutions and linear layers on a path from the input."""

    shortest: int
    longest: int


class PlacedLayer(NamedTuple):
    """One layer, of any kind."""

    kind: str
    shape: Shape
    """of its output for one sample"""
    paths: Paths | None
    """up to and with this layer; None if no path leads to it"""

    @property
    def channels(self) -> int:
        return self.shape[0] if self.kind == "conv" else self.shape[-1]

    @property
    def values(self) -> int:
        """The number of values that it gives for one sample."""
        return math.prod(self.shape)


class Structure(NamedTuple):
    """The layers of a network in the order of the run, and the paths from input to output."""

    layers: tuple[PlacedLayer, ...]
    paths: Paths | None

    @property
    def weighted(self) -> list[PlacedLayer]:
        """The convolutions and linear layers."""
        return [layer for layer in self.layers if layer.kind in WEIGHTED]


def joined(paths: Iterable[Paths | None]) -> Paths | None:
    """Returns the paths through any of these; None if there is none."""
    there = [one for one in paths if one is not None]
    return Paths(min(one.shortest for one in there), max(one.longest for one in there)) if there else None


def structure_of(plan: Plan) -> Structure:
    """Returns the structure of a plan, without an auxiliary tower."""
    layers: list[PlacedLayer] = []
    paths: list[Paths | None] = []
    for op, inputs, _, shape, _ in plan.trunk.nodes:
        own = joined(paths[i] for i in inputs) if inputs else Paths(0, 0)
        if op.kind == "zero":
            own = None
        elif own is not None and op.kind in WEIGHTED:
            own = Paths(own.shortest + 1, own.longest + 1)
        paths.append(own)
        if op.kind:
            layers.append(PlacedLayer(op.kind, shape, own))
    return Structure(tuple(layers), paths[-1])
