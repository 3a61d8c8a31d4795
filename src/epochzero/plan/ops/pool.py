"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

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
        centred = self.stride == 1 and self.kernel == 2 * self.padding + 1
        if centred and x[0].requires_grad:
            pooled: Tensor = _Centred.apply(x[0], self.kernel)  # type: ignore[no-untyped-call]
            return pooled
        return F.avg_pool2d(x[0], self.kernel, self.stride, self.padding, count_include_pad=False)

    def label(self) -> str:
        return f"avg pool {self.kernel}×{self.kernel}" + (f" /{self.stride}" if self.stride > 1 else "")

    def code(self, *inputs: Shape) -> str:
        padding = f", padding={self.padding}, count_include_pad=False" if self.padding else ""
        return f"nn.AvgPool2d({self.kernel}, stride={self.stride}{padding})"


class _Centred(Function):
    """Average pooling of stride 1: torch's values, and a backward pass that costs no more than a forward one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int) -> Tensor:
        ctx.kernel = kernel
        return F.avg_pool2d(x, kernel, 1, kernel // 2, count_include_pad=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        spread = _spread(ctx.kernel, gradient.shape[2], gradient.shape[3], gradient.dtype, gradient.device)
        return _Box.apply(gradient * spread, ctx.kernel), None  # type: ignore[no-untyped-call]


class _Box(Function):
    """The mean over a centred window, zeros beyond the border: its own transpose, so its own derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int) -> Tensor:
        ctx.kernel = kernel
        return F.avg_pool2d(x, kernel, 1, kernel // 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Box.apply(gradient, ctx.kernel), None  # type: ignore[no-untyped-call]


@lru_cache(maxsize=64)
def _spread(kernel: int, height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """By how much a window is larger than the part of it inside the map."""
    inside = F.avg_pool2d(torch.ones(1, 1, height, width, dtype=torch.float64), kernel, 1, kernel // 2)
    return (1 / inside).to(device, dtype)  # [1, 1, H, W]


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
