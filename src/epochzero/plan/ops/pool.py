"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from epochzero.plan.ops.base import Back, Gradients, Jet, Op, RoutineStep, sides, signed, spatial, tokens, windowed
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Window(Op):
    """A pool over a sliding square window."""

    kernel: int
    stride: int
    padding: int = 0

    kind = "pool"
    channelwise = True

    def shape(self, *inputs: Shape) -> Shape:
        c, h, w = spatial(self, inputs[0])
        if 2 * self.padding > self.kernel:
            raise ValueError(f"{self} pads by more than half of its window")
        window = (self.kernel, self.stride, self.padding)
        return c, windowed(h, *window), windowed(w, *window)


@dataclass(frozen=True, slots=True)
class MaxPool(Window):
    """The largest value in a sliding square window; the derivatives are those of that value."""

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return F.max_pool2d(x[0], self.kernel, self.stride, self.padding)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        window = (self.kernel, self.stride, self.padding)
        value, place = F.max_pool2d(x[0][0], *window, return_indices=True)  # [B, C, H', W'], of the H*W places
        velocity, acceleration = (
            s.flatten(2).gather(2, place.flatten(2)).view(place.shape)  # [B, C, H', W']
            for s in x[0][1:]
        )
        return value, velocity, acceleration

    def label(self) -> str:
        return f"max pool {sides(self.kernel, self.stride)}"

    def code(self, *inputs: Shape) -> str:
        padding = f", padding={self.padding}" if self.padding else ""
        return f"nn.MaxPool2d({self.kernel}, stride={self.stride}{padding})"


@dataclass(frozen=True, slots=True)
class AvgPool(Window):
    """The mean over a sliding square window; padding counts as zeros only if `count_padding` says so."""

    count_padding: bool = False

    linear = True

    def routine_step(self, networks: int = 1) -> RoutineStep:
        return "" if self.count_padding else "pooling"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if self._centred and x[0].requires_grad:
            pooled: Tensor = _Centred.apply(x[0], self.kernel)  # type: ignore[no-untyped-call]
            return pooled
        return F.avg_pool2d(x[0], self.kernel, self.stride, self.padding, count_include_pad=self.count_padding)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        pooled = self.run(x, w)

        def back(
            gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
        ) -> tuple[Gradients, Gradients]:
            return [self._of_input(gradient, x[0]) if inputs[0] else None], []

        return pooled, back

    def _of_input(self, gradient: Tensor, x: Tensor) -> Tensor:
        if self._centred:
            spread = _spread(self.kernel, *x.shape[2:], x.dtype, x.device)
            return F.avg_pool2d(gradient * spread, self.kernel, 1, self.padding)
        window = ([self.kernel] * 2, [self.stride] * 2, [self.padding] * 2)
        of_input: Tensor = torch.ops.aten.avg_pool2d_backward(gradient, x, *window, False, self.count_padding, None)
        return of_input

    @property
    def _centred(self) -> bool:
        """True for the mean around each position, of those inside the map, with stride 1."""
        return self.stride == 1 and self.kernel == 2 * self.padding + 1 and not self.count_padding

    def label(self) -> str:
        return f"avg pool {sides(self.kernel, self.stride)}"

    def code(self, *inputs: Shape) -> str:
        counted = "" if self.count_padding else ", count_include_pad=False"
        padding = f", padding={self.padding}{counted}" if self.padding else ""
        return f"nn.AvgPool2d({self.kernel}, stride={self.stride}{padding})"


class _Centred(Function):
    """Average pooling of stride 1 whose backward pass is as fast as the forward pass."""

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
    @signed
    def forward(x: Tensor, kernel: int) -> Tensor:
        return F.avg_pool2d(x, kernel, 1, kernel // 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.kernel = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Box.apply(gradient, ctx.kernel), None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, kernel: int) -> tuple[Tensor, int]:  # noqa: ARG004
        rows = x.movedim(in_dims[0], 0)  # [R, B, C, H, W]
        pooled: Tensor = _Box.apply(rows.flatten(0, 1), kernel)  # type: ignore[no-untyped-call]
        return pooled.view(rows.shape), 0


@lru_cache(maxsize=64)
def _spread(kernel: int, height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the size of a window divided by the size of its part inside the map."""
    inside = F.avg_pool2d(torch.ones(1, 1, height, width, dtype=torch.float64), kernel, 1, kernel // 2)
    return (1 / inside).to(device, dtype)  # [1, 1, H, W]


@dataclass(frozen=True, slots=True)
class GlobalAvgPool(Op):
    """The mean over space: one number for each channel; with `keep`, as a map of size 1 (for gates)."""

    keep: bool = False

    kind = "pool"
    channelwise = True
    linear = True
    drawn_as = "global pool"

    def shape(self, *inputs: Shape) -> Shape:
        channels = spatial(self, inputs[0])[0]
        return (channels, 1, 1) if self.keep else (channels,)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].mean((2, 3), keepdim=self.keep)

    def expression(self, *names: str) -> str:
        return f"{names[0]}.mean((2, 3){', keepdim=True' if self.keep else ''})"


@dataclass(frozen=True, slots=True)
class TokenMean(Op):
    """The mean over tokens, from the one numbered `start` on: with 1, a class token in front is left out."""

    start: int = 0

    kind = "pool"
    linear = True
    drawn_as = "mean of tokens"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[0])
        if not 0 <= self.start < n:
            raise ValueError(f"{self} leaves none of {n} tokens")
        return (e,)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0][:, self.start :].mean(1)

    def expression(self, *names: str) -> str:
        return f"{names[0]}[:, {self.start}:].mean(1)" if self.start else f"{names[0]}.mean(1)"
