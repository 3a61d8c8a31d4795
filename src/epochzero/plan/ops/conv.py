"""Convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import (
    Back,
    Gradients,
    Op,
    Pair,
    Param,
    RoutineStep,
    options,
    pair,
    sides,
    spatial,
    windowed,
)
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
        return replace(self, out_channels=count * self.out_channels, groups=count * self.groups)

    def routine_step(self, networks: int = 1) -> RoutineStep:
        """Routines run square windows without bias, one group for each network."""
        square = isinstance(self.kernel, int) and isinstance(self.stride, int) and isinstance(self.padding, int)
        return "convolution" if square and not self.bias and self.groups == networks else ""

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        bias = w[1] if len(w) > 1 else None
        return F.conv2d(x[0], w[0], bias, self.stride, self.padding, self.dilation, self.groups)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        geometry = (list(pair(self.stride)), list(pair(self.padding)), [self.dilation] * 2, False, [0, 0], self.groups)

        def back(
            gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
        ) -> tuple[Gradients, Gradients]:
            wanted = [inputs[0], params[0], len(w) > 1 and params[1]]
            bias = [len(w[0])] if len(w) > 1 else None
            of_x, *of_w = torch.ops.aten.convolution_backward(gradient, x[0], w[0], bias, *geometry, wanted)
            if rectified and of_x is not None:
                of_x = torch.ops.aten.threshold_backward(of_x, x[0], 0)
            return [of_x], of_w[: len(w)]

        return Conv.run(self, x, w), back

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]

    def label(self) -> str:
        grouped = "dw " if 1 < self.groups == self.out_channels else "group " if self.groups > 1 else ""
        spread = f" dil {self.dilation}" if self.dilation > 1 else ""
        return f"{grouped}conv {sides(self.kernel, self.stride)}{spread}"

    def code(self, *inputs: Shape) -> str:
        extras = [("stride", self.stride, 1), ("padding", self.padding, 0), ("dilation", self.dilation, 1)]
        extras += [("groups", self.groups, 1), ("bias", self.bias, True)]
        return f"nn.Conv2d({inputs[0][0]}, {self.out_channels}, {self.kernel}{options(*extras)})"
