"""Convolution and average pooling of many networks at once, by our own kernels where they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.gpu import fused
from epochzero.plan.ops.base import Back, Gradients, Op, pair, windowed
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.pool import AvgPool


@dataclass(frozen=True, slots=True)
class GroupedConv(Conv):
    """A convolution with one group of channels, or several, for each network."""

    @property
    def name(self) -> str:
        return "conv"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if self._fused(x[0], w):
            return fused.grouped_conv(x[0], w[0], self.stride, self.padding, self.dilation, self.groups)  # type: ignore[arg-type]
        if self._by_products(x[0], w):
            return conv_products(x[0], w[0], pair(self.stride), pair(self.padding), self.groups)
        return Conv.run(self, x, w)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if self._by_products(x[0], w):
            return recorded_conv_products(x[0], w[0], pair(self.stride), pair(self.padding), self.groups)
        if not self._fused(x[0], w):
            return None
        return fused.recorded_conv(x[0], w[0], (self.stride, self.padding, self.dilation, self.groups))  # type: ignore[arg-type]

    def _by_products(self, x: Tensor, w: tuple[Tensor, ...]) -> bool:
        return len(w) == 1 and self.dilation == 1 and slow_in_groups(x)

    def _fused(self, x: Tensor, w: tuple[Tensor, ...]) -> bool:
        return len(w) == 1 and fused.available(x) and fused.fits(w[0], self.stride, self.padding)


@dataclass(frozen=True, slots=True)
class GroupedAvgPool(AvgPool):
    """The mean over a sliding window of the maps of many networks."""

    @property
    def name(self) -> str:
        return "avgpool"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if self._fused(x[0]):
            return fused.box_mean(x[0], self.kernel, self.stride, self.padding)
        return AvgPool.run(self, x, w)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if self._fused(x[0]):
            return fused.recorded_box(x[0], self.kernel, self.stride, self.padding)
        return AvgPool.recorded(self, x, w)

    def _fused(self, x: Tensor) -> bool:
        return not self.count_padding and fused.available(x)


KERNELS: dict[type[Op], type[Op]] = {Conv: GroupedConv, AvgPool: GroupedAvgPool}
"""for ops whose grouped form has kernels of our own, the class that runs them"""


def with_kernels(op: Op) -> Op:
    """Returns the same op of many networks, run by our own kernels where there are some."""
    kind = KERNELS.get(type(op))
    return op if kind is None else kind(*(getattr(op, field.name) for field in fields(op)))  # type: ignore[arg-type]


def slow_in_groups(x: Tensor) -> bool:
    """Returns True where the library is slow at convolutions of many groups: on a GPU in double precision."""
    return x.is_cuda and x.dtype == torch.float64


def conv_products(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int) -> Tensor:
    """Computes `F.conv2d` as one product of matrices for each group; can be differentiated any number of times."""
    columns, size = _columns(x, weight, stride, padding, groups)
    return _images(weight.view(groups, -1, columns.shape[1]) @ columns, len(x), size)  # [B, G * Co, Ho, Wo]


def recorded_conv_products(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int
) -> tuple[Tensor, Back]:
    """Returns the output of `conv_products` and its backward pass."""
    columns, size = _columns(x, weight, stride, padding, groups)
    factors = weight.view(groups, -1, columns.shape[1])  # [G, Co, Ci * k * k]
    whole = _is_whole(weight, stride, padding)

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        apart = _by_group(gradient.flatten(2), groups)  # [G, Co, B * Ho * Wo]
        of_x = of_weight = None
        if inputs[0]:
            of_windows = _images(factors.mT @ apart, len(x), size)  # [B, G * Ci * k * k, Ho, Wo]
            if not whole:
                of_windows = F.fold(of_windows.flatten(2), x.shape[2:], weight.shape[2:], 1, padding, stride)
            of_x = torch.ops.aten.threshold_backward(of_windows, x, 0) if rectified else of_windows
        if params[0]:
            of_weight = (apart @ columns.mT).view_as(weight)
        return [of_x], [of_weight]

    return _images(factors @ columns, len(x), size), back


def _columns(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int
) -> tuple[Tensor, tuple[int, int]]:
    """Returns the windows of the input, [G, Ci * k * k, B * Ho * Wo], and the output's height and width."""
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)
    height, width = (windowed(*side) for side in sides)
    if _is_whole(weight, stride, padding):
        return _by_group(x.flatten(2), groups), (height, width)
    return _by_group(F.unfold(x, weight.shape[2:], 1, padding, stride), groups), (height, width)


def _is_whole(weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Returns True for a 1 x 1 convolution without stride and padding."""
    return weight.shape[2:] == (1, 1) == stride and padding == (0, 0)


def _by_group(rows: Tensor, groups: int) -> Tensor:
    """Returns [B, G * R, N] as [G, R, B * N]."""
    each: Tensor = rows.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    return each.movedim(0, 2).flatten(2)


def _images(products: Tensor, images: int, size: tuple[int, int]) -> Tensor:
    """Returns [G, R, B * H * W] as [B, G * R, H, W]."""
    return products.view(*products.shape[:2], images, *size).movedim(2, 0).flatten(1, 2)
