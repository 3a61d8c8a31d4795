"""Activations, each with its first two derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Jet, Joined, Op, RoutineStep, joined
from epochzero.types import Shape


class Activation(Op):
    """An elementwise function."""

    kind = "activation"
    channelwise = True
    function: ClassVar[Callable[..., Tensor]]
    """of each number, in torch"""

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return type(self).function(x[0])

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the first and second derivative of the function at x."""
        raise NotImplementedError(
            f"op {type(self).__name__} has no second derivative along a curve: its class defines neither `slopes` nor "
            "`jet`"
        )

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value, velocity, acceleration = x[0]
        slope, bend = self.slopes(value)
        return self.run((value,), w), slope * velocity, bend * velocity * velocity + slope * acceleration

    def code(self, *inputs: Shape) -> str:
        return f"nn.{type(self).__name__}()"


@dataclass(frozen=True, slots=True)
class ReLU(Activation):
    """max(x, 0)."""

    function = staticmethod(torch.relu)
    rectifies = True

    def routine_step(self, networks: int = 1) -> RoutineStep:
        return "relu"

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        streams = joined(x[0]).unflatten(0, (3, -1))  # type: ignore[no-untyped-call]  # [3, B, ...]
        return Joined((streams * (streams[0] > 0)).flatten(0, 1))


@dataclass(frozen=True, slots=True)
class ReLU6(Activation):
    """min(max(x, 0), 6)."""

    function = staticmethod(F.relu6)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return ((x > 0) & (x < 6)).to(x.dtype), torch.zeros_like(x)


@dataclass(frozen=True, slots=True)
class GELU(Activation):
    """x Phi(x), with Phi the distribution function of N(0, 1). Hendrycks, Gimpel 2016. arXiv:1606.08415"""

    function = staticmethod(F.gelu)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return torch.special.ndtr(x) + x * density, (2 - x * x) * density


@dataclass(frozen=True, slots=True)
class SiLU(Activation):
    """x sigmoid(x), also called swish."""

    function = staticmethod(F.silu)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.sigmoid(x)
        ds = s * (1 - s)
        return s + x * ds, ds * (2 + x * (1 - 2 * s))


@dataclass(frozen=True, slots=True)
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    function = staticmethod(torch.sigmoid)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.sigmoid(x)
        ds = s * (1 - s)
        return ds, ds * (1 - 2 * s)


@dataclass(frozen=True, slots=True)
class Tanh(Activation):
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x))."""

    function = staticmethod(torch.tanh)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(x)
        dy = 1 - y * y
        return dy, -2 * y * dy


@dataclass(frozen=True, slots=True)
class Hardswish(Activation):
    """x min(max(x + 3, 0), 6) / 6. Howard et al. 2019. arXiv:1905.02244"""

    function = staticmethod(F.hardswish)

    def slopes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        between = ((x > -3) & (x < 3)).to(x.dtype)
        return between * (2 * x + 3) / 6 + (x >= 3), between / 3
