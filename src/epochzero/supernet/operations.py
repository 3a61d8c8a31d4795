"""A network whose edges hold several operations each, with weights that are numbers: what Zero-Cost-PT works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.types import Shape

Weights = Mapping[str, tuple[float, ...]]
"""for each edge the weight of each operation; one of weight 0 is left out, an edge without any is cut"""


@dataclass(frozen=True)
class Supernet:
    """All operations on all edges."""

    ops: tuple[str, ...]
    cells: Mapping[str, tuple[str, ...]]
    """the edges of each kind of cell"""
    crowded: Mapping[str, tuple[tuple[str, ...], ...]]
    """of each kind of cell the nodes that two edges may reach, as the edges that do"""
    plan: Callable[[Weights], Plan]
    decode: Callable[[Mapping[str, str]], Any]
    """the architecture of the space whose edges have these operations; other edges are cut"""
    alone: Callable[[Any], Plan]
    """the network of one architecture, at the size of the supernet"""


@singledispatch
def supernet(space: Any, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Supernet:
    """The supernet of a space for this task; `cells` 0 stands for as many as the space's paper searches with."""
    raise UserError(f"The space '{getattr(space, 'name', space)}' has no supernet of operations: use nb201 or darts.")
