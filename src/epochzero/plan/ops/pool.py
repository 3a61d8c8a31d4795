"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Op, spatial, windowed
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class AvgPool(Op):
    """The mean over a sliding square window; padding is not counted in the mean."""

    kernel: int
    stride: int
    padding: int = 0

    kind = "pool"
    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        c, h, w = spatial(self, inputs[0])
        window = (self.kernel, self.stride, self.padding)
        return c, windowed(h, *window), windowed(w, *window)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return F.avg_pool2d(x[0], self.kernel, self.stride, self.padding, count_include_pad=False)

    def label(self) -> str:
        return f"avg pool {self.kernel}×{self.kernel}" + (f" /{self.stride}" if self.stride > 1 else "")

    def code(self, *inputs: Shape) -> str:
        padding = f", padding={self.padding}, count_include_pad=False" if self.padding else ""
        return f"nn.AvgPool2d({self.kernel}, stride={self.stride}{padding})"


@dataclass(frozen=True, slots=True)
class GlobalAvgPool(Op):
    """The mean over space: one number for each channel."""

    kind = "pool"
    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        return (spatial(self, inputs[0])[0],)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].mean((2, 3))

    def label(self) -> str:
        return "global pool"

    def expression(self, *names: str) -> str:
        return f"{names[0]}.mean((2, 3))"
