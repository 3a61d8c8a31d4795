"""Convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops import fused
from epochzero.plan.ops.base import Back, Gradients, Op, Pair, Param, pair, sides, spatial, windowed
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Conv(Op):
    """A 2-D convolution."""

    out_channels: int
    kernel: Pair
    stride: Pair = 1
    padding: Pair = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = False
    joint: bool = False
    """runs many networks side by side"""

    kind = "conv"
    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        c, *size = spatial(self, inputs[0])
        if c % self.groups or self.out_channels % self.groups:
            raise ValueError(f"{self.groups} groups do not divide {c} and {self.out_channels} channels")
        windows = zip(size, pair(self.kernel), pair(self.stride), pair(self.padding), strict=True)
        h, w = (windowed(*window, self.dilation) for window in windows)
        return self.out_channels, h, w

    def params(self, *inputs: Shape) -> dict[str, Param]:
        per_group = inputs[0][0] // self.groups
        window = math.prod(pair(self.kernel))
        fan_in, fan_out = per_group * window, self.out_channels // self.groups * window
        weight = Param((self.out_channels, per_group, *pair(self.kernel)), "weight", fan_in, fan_out)
        return {"weight": weight} | (
            {"bias": Param((self.out_channels,), "bias", fan_in, fan_out)} if self.bias else {}
        )

    def macs(self, *inputs: Shape) -> int:
        return math.prod(self.shape(*inputs)) * (inputs[0][0] // self.groups) * math.prod(pair(self.kernel))

    def side_by_side(self, count: int, *inputs: Shape) -> Op:
        return replace(self, out_channels=count * self.out_channels, groups=count * self.groups, joint=True)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        bias = w[1] if len(w) > 1 else None
        if self._fused(x[0], w):
            return fused.grouped_conv(x[0], w[0], self.stride, self.padding, self.dilation, self.groups)  # type: ignore[arg-type]
        if self._of_products(x[0], w):
            return as_products(x[0], w[0], pair(self.stride), pair(self.padding), self.groups)
        return F.conv2d(x[0], w[0], bias, self.stride, self.padding, self.dilation, self.groups)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if self._of_products(x[0], w):
            return recorded_products(x[0], w[0], pair(self.stride), pair(self.padding), self.groups)
        if not self._fused(x[0], w):
            return None
        return fused.recorded_conv(x[0], w[0], (self.stride, self.padding, self.dilation, self.groups))  # type: ignore[arg-type]

    def _of_products(self, x: Tensor, w: tuple[Tensor, ...]) -> bool:
        return self.joint and len(w) == 1 and self.dilation == 1 and slow_in_groups(x)

    def _fused(self, x: Tensor, w: tuple[Tensor, ...]) -> bool:
        return self.joint and len(w) == 1 and fused.available(x) and fused.fits(w[0], self.stride, self.padding)

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]

    def label(self) -> str:
        grouped = "dw " if 1 < self.groups == self.out_channels else "group " if self.groups > 1 else ""
        spread = f" dil {self.dilation}" if self.dilation > 1 else ""
        return f"{grouped}conv {sides(self.kernel, self.stride)}{spread}"

    def code(self, *inputs: Shape) -> str:
        extras = [("stride", self.stride, 1), ("padding", self.padding, 0), ("dilation", self.dilation, 1)]
        extras += [("groups", self.groups, 1), ("bias", self.bias, True)]
        given = "".join(f", {name}={value}" for name, value, usual in extras if value != usual)
        return f"nn.Conv2d({inputs[0][0]}, {self.out_channels}, {self.kernel}{given})"


def slow_in_groups(x: Tensor) -> bool:
    """Whether the library is slow at convolutions of many groups: a GPU's in double precision."""
    return x.is_cuda and x.dtype == torch.float64


def as_products(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int) -> Tensor:
    """`F.conv2d` as one product of matrices for each group; may be differentiated as often as wanted."""
    columns, size = _columns(x, weight, stride, padding, groups)
    return _images(weight.view(groups, -1, columns.shape[1]) @ columns, len(x), size)  # [B, G * Co, Ho, Wo]


def recorded_products(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int
) -> tuple[Tensor, Back]:
    """The same with its way back."""
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
    """What each place of the output sees, [G, Ci * k * k, B * Ho * Wo], and the output's height and width."""
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)
    height, width = (windowed(*side) for side in sides)
    if _is_whole(weight, stride, padding):
        return _by_group(x.flatten(2), groups), (height, width)
    return _by_group(F.unfold(x, weight.shape[2:], 1, padding, stride), groups), (height, width)


def _is_whole(weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Whether each place of the output sees the same place of the input."""
    return weight.shape[2:] == (1, 1) == stride and padding == (0, 0)


def _by_group(rows: Tensor, groups: int) -> Tensor:
    """[B, G * R, N] as [G, R, B * N]."""
    each: Tensor = rows.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    return each.movedim(0, 2).flatten(2)


def _images(products: Tensor, images: int, size: tuple[int, int]) -> Tensor:
    """[G, R, B * H * W] as [B, G * R, H, W]."""
    return products.view(*products.shape[:2], images, *size).movedim(2, 0).flatten(1, 2)
