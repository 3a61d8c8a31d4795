"""Grouped convolution, average pooling and gathered sums on a GPU, for many networks at once.

Ask `available` before. All three are linear in each argument, so the derivative of each is made of them again, and
derivatives of any order work:

    y = conv(x, w):        x' = input(y', w)       w' = weight(x, y')
    x = input(y, w):       y' = conv(x', w)        w' = weight(x', y)
    w = weight(x, y):      x' = input(y, w')       y' = conv(x, w')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from epochzero.engine.gpu import arena
from epochzero.plan.ops.base import Back, Gradients
from epochzero.plan.upload import upload_columns
from epochzero.types import Shape

Geometry = tuple[int, int, int, int]
"""(stride, padding, dilation, groups)"""
Shapes = tuple[Shape, Shape, Shape]
"""of a convolution's input, weight and output"""


def available(x: Tensor) -> bool:
    """Returns True where all kernels of this file can run on `x`."""
    return x.is_cuda and x.dtype == torch.float32 and arena.usable()


def fits(weight: Tensor, stride: object, padding: object) -> bool:
    """Returns True for the weights that `grouped_conv` supports: square windows, 2 to 64 channels in a group."""
    inputs, height, width = weight.shape[1:]
    return isinstance(stride, int) and isinstance(padding, int) and height == width and 1 < inputs <= 64


def gathers(x: Tensor) -> bool:
    """Returns True where `gather_sum` can run on `x`, which may be in double precision too."""
    return x.is_cuda and x.dtype in (torch.float32, torch.float64) and arena.usable()


def grouped_conv(
    x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
) -> Tensor:
    """Computes `F.conv2d` without bias: x [B, M * Ci, H, W] and weight [M * Co, Ci, k, k] give [B, M * Co, Ho, Wo]."""
    geometry = (stride, padding, dilation, groups)
    shapes = (x.shape, weight.shape, _output_shape(x, weight, geometry))
    out: Tensor = _Convolution.apply(OUTPUT, x, weight, shapes, geometry)  # type: ignore[no-untyped-call]
    return out


def recorded_conv(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Tensor, Back]:
    """Returns the output of `grouped_conv` and its backward pass."""
    shapes = (x.shape, weight.shape, _output_shape(x, weight, geometry))

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        on = x if rectified else None
        of_x = _from_others(INPUT, weight, gradient, shapes, geometry, on) if inputs[0] else None
        of_weight = _from_others(WEIGHT, x, gradient, shapes, geometry) if params[0] else None
        return [of_x], [of_weight]

    return _from_others(OUTPUT, x, weight, shapes, geometry), back


def _output_shape(x: Tensor, weight: Tensor, geometry: Geometry) -> Shape:
    stride, padding, dilation, _ = geometry
    reach = (weight.shape[3] - 1) * dilation + 1 - 2 * padding
    return (len(x), len(weight), *((side - reach) // stride + 1 for side in x.shape[2:]))


INPUT, WEIGHT, OUTPUT = range(3)


def _from_others(
    role: int, first: Tensor, second: Tensor, shapes: Shapes, geometry: Geometry, on: Tensor | None = None
) -> Tensor:
    """Computes input, weight or output of a convolution from the other two, given in this order."""
    stride, padding, dilation, groups = geometry
    window = (shapes[WEIGHT][3], stride, padding, dilation)
    kernels = arena.kernels()
    if role == WEIGHT:
        result = kernels.correlate_joint(first, second, shapes[WEIGHT], groups, window)
    elif role == OUTPUT:
        result = kernels.convolve_joint(first, second, shapes[OUTPUT][2:], groups, window, False, None)
    else:
        result = kernels.convolve_joint(second, first, shapes[INPUT][2:], groups, window, True, on)
    return result  # type: ignore[no-any-return]


class _Convolution(Function):
    """`_from_others` for autograd: its derivatives are the same function with other roles."""

    @staticmethod
    def forward(ctx: Any, role: int, first: Tensor, second: Tensor, shapes: Shapes, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(first, second)
        ctx.settings = role, shapes, geometry
        return _from_others(role, first, second, shapes, geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        role, *settings = ctx.settings
        others = [other for other in (INPUT, WEIGHT, OUTPUT) if other != role]
        given = dict(zip(others, ctx.saved_tensors, strict=True))
        gradients: list[Tensor | None] = [None, None]
        for place, (wanted, needed) in enumerate(zip(others, ctx.needs_input_grad[1:3], strict=True)):
            if needed:
                kept = {other: value for other, value in given.items() if other != wanted} | {role: gradient}
                pair = (kept[other] for other in sorted(kept))
                gradients[place] = _Convolution.apply(wanted, *pair, *settings)  # type: ignore[no-untyped-call]
        return None, *gradients, None, None


def box_mean(x: Tensor, kernel: int = 3, stride: int = 1, padding: int = 1) -> Tensor:
    """Computes the mean over sliding square windows, padding not counted."""
    large, small = _sizes(x, kernel, stride, padding)
    out: Tensor = _Box.apply(x, large, small, (kernel, stride, padding), False)  # type: ignore[no-untyped-call]
    return out


def recorded_box(x: Tensor, kernel: int, stride: int, padding: int) -> tuple[Tensor, Back]:
    """Returns the output of `box_mean` and its backward pass."""
    large, small = _sizes(x, kernel, stride, padding)

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        assert inputs[0] and not params and not rectified
        return [arena.kernels().box(gradient, large, small, kernel, stride, padding, True)], []

    return arena.kernels().box(x, large, small, kernel, stride, padding, False), back


def _sizes(x: Tensor, kernel: int, stride: int, padding: int) -> tuple[tuple[int, int], tuple[int, int]]:
    height, width = x.shape[2:]
    small = ((height + 2 * padding - kernel) // stride + 1, (width + 2 * padding - kernel) // stride + 1)
    return (height, width), small


class _Box(Function):
    """The mean over windows, from large maps to small ones, or its transpose: each is the other's derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        large: tuple[int, int],
        small: tuple[int, int],
        window: tuple[int, int, int],
        transposed: bool,
    ) -> Tensor:
        ctx.settings = large, small, window, not transposed
        out: Tensor = arena.kernels().box(x, large, small, *window, transposed)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return _Box.apply(g, *ctx.settings), None, None, None, None  # type: ignore[no-untyped-call]


Launch = tuple[int, int, tuple[Tensor, ...]]
"""(first source, end, (where each map's terms start, each term's source counted from the first, its map there))"""

Column = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class GatherTable:
    """The maps of its sources that `gather_sum` adds up, as columns, ordered by output map.

    It keeps its tables on each device, and the transposed ones that a backward pass reads.
    """

    maps: int
    sizes: tuple[int, ...]
    outs: Column
    sources: Column
    slots: Column
    _launches: dict[torch.device, list[Launch]] = field(default_factory=dict, init=False, repr=False)
    _transposed: dict[int, GatherTable] = field(default_factory=dict, init=False, repr=False)

    def launches(self, device: torch.device) -> list[Launch]:
        """Returns the tables of each launch, which reads a limited number of sources."""
        if device not in self._launches:
            step, count = arena.kernels().SOURCES, len(self.sizes)
            ranges = [(first, min(first + step, count)) for first in range(0, count, step)]
            self._launches[device] = [(first, end, self._columns(first, end, device)) for first, end in ranges]
        return self._launches[device]

    def _columns(self, first: int, end: int, device: torch.device) -> tuple[Tensor, ...]:
        own = (self.sources >= first) & (self.sources < end)
        starts = np.cumsum(np.bincount(self.outs[own] + 1, minlength=self.maps + 1))
        columns = (starts, self.sources[own] - first, self.slots[own])
        return tuple(upload_columns(columns, device))

    def transposed(self, source: int) -> GatherTable:
        """Returns the table that turns the gradient of the sums into that of a source."""
        if source not in self._transposed:
            own = np.flatnonzero(self.sources == source)
            own = own[np.argsort(self.slots[own], kind="stable")]
            columns = self.slots[own], np.zeros_like(own), self.outs[own]
            self._transposed[source] = GatherTable(self.sizes[source], (self.maps,), *columns)
        return self._transposed[source]


def gather_sum(sources: Sequence[Tensor], table: GatherTable) -> Tensor:
    """Sums the terms of each output map: sources [B, M_s * C, H, W] of equal C give [B, M * C, H, W]."""
    out: Tensor = _GatherSum.apply(table, *sources)  # type: ignore[no-untyped-call]
    return out


def gathered(sources: Sequence[Tensor], table: GatherTable, on: Tensor | None = None) -> Tensor:
    """Computes `gather_sum` without autograd; 0 where `on`, if given, is not positive."""
    dense = [source.contiguous() for source in sources]
    images, channels, *size = dense[0].shape
    out = dense[0].new_empty(images, channels // table.sizes[0] * table.maps, *size)
    on = None if on is None else on.contiguous()
    for first, end, terms in table.launches(out.device):
        arena.kernels().gather(out, dense[first:end], table.sizes[first:end], terms, first > 0, on)
    return out


class _GatherSum(Function):
    @staticmethod
    def forward(ctx: Any, table: GatherTable, *sources: Tensor) -> Tensor:
        ctx.table = table
        return gathered(sources, table)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        needed = enumerate(ctx.needs_input_grad[1:])
        return None, *(gather_sum((g,), ctx.table.transposed(s)) if wanted else None for s, wanted in needed)
