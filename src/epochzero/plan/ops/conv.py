"""Convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops import fused
from epochzero.plan.ops.base import Back, Op, Pair, Param, pair, sides, spatial, windowed
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
        if self.joint and bias is None and self.dilation == 1 and x[0].is_cuda and x[0].dtype == torch.float64:
            return as_products(x[0], w[0], pair(self.stride), pair(self.padding), self.groups)
        return F.conv2d(x[0], w[0], bias, self.stride, self.padding, self.dilation, self.groups)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if not self._fused(x[0], w):
            return None
        return fused.recorded_conv(x[0], w[0], (self.stride, self.padding, self.dilation, self.groups))  # type: ignore[arg-type]

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


def as_products(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], groups: int) -> Tensor:
    """`F.conv2d` as one product of matrices for each group: a GPU's library is slow at many groups in double."""
    (down, right), (height, width) = padding, weight.shape[2:]
    images = len(x)
    padded = F.pad(x, (right, right, down, down)) if down or right else x
    windows = padded.unfold(2, height, stride[0]).unfold(3, width, stride[1])  # [B, G * Ci, Ho, Wo, k, k]
    size = windows.shape[2:4]
    apart = windows.view(images, groups, -1, *windows.shape[2:])  # [B, G, Ci, Ho, Wo, k, k]
    each = apart.permute(1, 2, 5, 6, 0, 3, 4)  # [G, Ci, k, k, B, Ho, Wo]
    columns = each.reshape(groups, -1, images * size.numel())  # [G, Ci * k * k, B * Ho * Wo]
    out = weight.view(groups, -1, columns.shape[1]) @ columns  # [G, Co, B * Ho * Wo]
    return out.view(groups, -1, images, *size).movedim(2, 0).flatten(1, 2)  # [B, G * Co, Ho, Wo]
