"""The steps of a routine: sums, convolutions and poolings of maps, forward and backward, and the tables they read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.plan.upload import upload_columns

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
NONE = -1
"""the row of a map that is neither scaled nor shifted"""


class Value(NamedTuple):
    """The maps of a node, each as terms that add up to it."""

    starts: Numbers
    """[M + 1] where the terms of each map begin, and the end"""
    slots: Numbers
    rows: Numbers
    rectified: bool = False
    """the maps are max(x, 0) of these sums"""

    @property
    def counts(self) -> Numbers:
        return np.diff(self.starts)

    def part(self, maps: Numbers) -> Value:
        """Returns some of its maps, in this order."""
        counts = self.counts[maps]
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.starts[maps] - starts[:-1], counts) + np.arange(starts[-1])
        return Value(starts, self.slots[at], self.rows[at], self.rectified)

    @property
    def written(self) -> Mask:
        """Which of its maps are in the arena already: one term that is not to be scaled."""
        there: Mask = self.counts == 1
        there[there] = self.rows[self.starts[:-1][there]] == NONE
        return there


def single(slots: Numbers, rows: Numbers | None = None) -> Value:
    """Returns a value of one term for each map."""
    return Value(np.arange(len(slots) + 1), slots, np.full_like(slots, NONE) if rows is None else rows)


def nothing(maps: int) -> Value:
    """Returns maps without terms: zeros."""
    return Value(np.zeros(maps + 1, np.int64), *(np.zeros(0, np.int64),) * 2)


def side_by_side(values: Sequence[Value]) -> Value:
    """Returns the maps of several values, one value after the other."""
    ends = np.cumsum([0, *(len(value.slots) for value in values)])
    starts = np.concatenate([[0], *(value.starts[1:] + end for value, end in zip(values, ends, strict=False))])
    slots, rows = (np.concatenate([getattr(value, name) for value in values]) for name in ("slots", "rows"))
    return Value(starts, slots, rows)


class Sum(NamedTuple):
    """Maps to be written, each the sum of its terms."""

    shape: int
    """of the maps: a number, see `Routine.shapes`"""
    first: int
    """the slot of the first map; the others follow"""
    terms: Value


class Convolution(NamedTuple):
    """Convolutions of maps, and the norms that follow."""

    node: int
    norm: int | None
    """the node of the norms"""
    given: int
    """the shape of the input maps"""
    shape: int
    first: int
    row: int
    """the row of the first map's scale and shift"""
    sources: Numbers
    """the slots of the input maps"""
    which: Numbers
    """the indices of the maps, and of their weights, within the node"""
    relu: bool


class Pooling(NamedTuple):
    """Means over windows of maps."""

    node: int
    given: int
    shape: int
    first: int
    sources: Numbers


class BackConvolution(NamedTuple):
    """The backward pass of those convolutions that receive a gradient."""

    step: Convolution
    gradients: Numbers
    """the slots of the output's gradients"""
    alive: Numbers
    """which maps of the step they belong to"""
    first: int
    """the first slot of the input's gradients"""


class BackPooling(NamedTuple):
    step: Pooling
    gradients: Numbers
    first: int


Step = Sum | Convolution | Pooling
BackStep = Sum | BackConvolution | BackPooling


class Tables(NamedTuple):
    """The tables that the kernels of a routine read, on a device: a tuple for each step."""

    steps: list[tuple[Tensor, ...]]
    output: tuple[Tensor, ...]
    back_steps: list[tuple[Tensor, ...]]
    of_input: tuple[Tensor, ...]
    relus: dict[int, tuple[Tensor, Numbers]]
    """for each ReLU, the slots of its inputs, and which of its maps they are"""


@dataclass(frozen=True, eq=False)
class Routine:
    """The steps of a block, forward and backward."""

    shapes: tuple[int, ...]
    """for each shape, a node whose maps have it; the first is the input"""
    slots: tuple[int, ...]
    """the number of maps of each shape"""
    rows: tuple[int, ...]
    """the number of those that are scaled and shifted"""
    steps: tuple[Step, ...]
    output: Sum
    back_slots: tuple[int, ...]
    back_steps: tuple[BackStep, ...]
    of_input: Sum
    relus: dict[int, tuple[Numbers, Numbers]]
    """for each ReLU whose inputs are collected: which of its maps, and the slots of their inputs"""
    _tables: dict[torch.device, Tables] = field(default_factory=dict, init=False, repr=False)

    def tables(self, device: torch.device) -> Tables:
        """Returns the tables on a device, uploaded once in one copy."""
        if device not in self._tables:
            each = [*self.steps, self.output, *self.back_steps, self.of_input]
            groups = [*map(_columns, each), *((slots,) for _, slots in self.relus.values())]
            uploaded = iter(upload_columns(list(itertools.chain(*groups)), device))
            taken = [tuple(itertools.islice(uploaded, len(group))) for group in groups]
            end, last = len(self.steps), len(each) - 1
            relus = zip(self.relus.items(), taken[last + 1 :], strict=True)
            self._tables[device] = Tables(
                taken[:end],
                taken[end],
                taken[end + 1 : last],
                taken[last],
                {node: (slots, which) for (node, (which, _)), (slots,) in relus},
            )
        return self._tables[device]


def _columns(step: Step | BackStep) -> tuple[Numbers, ...]:
    """Returns the tables of a step."""
    if isinstance(step, Sum):
        return step.terms.starts, step.terms.slots, step.terms.rows
    if isinstance(step, Convolution):
        each = np.arange(len(step.which))
        return step.sources, step.which, step.first + each, step.row + each
    if isinstance(step, Pooling):
        return (step.sources,)
    if isinstance(step, BackPooling):
        return (step.gradients,)
    of, alive = step.step, step.alive
    one_each = np.arange(len(alive) + 1), np.full(len(alive), NONE)
    return step.gradients, of.first + alive, of.row + alive, of.which[alive], of.sources[alive], *one_each
