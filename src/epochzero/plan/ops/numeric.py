r"""Ops that prepare numbers of a table, whose statistics come from the training rows.

    Standardised    clamp((x - mean) scale, -4, 4)
    Piecewise       each number as its place among K intervals: 1 for those below it, 0 for those above it, and a share
    RowOfEach       a row for each number, a linear function of its K values
    Total           the sum of each row

    piecewise_dk(x) = clamp((x_d - low_dk) scale_dk, 0, 1)

Gorishniy, Rubachev, Babenko. On embeddings for numerical features in tabular deep learning. NeurIPS 2022.
arXiv:2203.05556
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.base import Jet, Op, Param, tokens
from epochzero.types import Shape

FAR = 4.0
"""standard deviations"""


class StandardisedNumbers(nn.Module):
    """Numbers minus their mean, times a scale, within 4."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * self.scale).clamp(-4, 4)


@dataclass(frozen=True, slots=True)
class Standardised(Op):
    """clamp((x - mean) scale, -4, 4)."""

    prints = (StandardisedNumbers,)
    drawn_as = "standardise"

    def shape(self, *inputs: Shape) -> Shape:
        return vector(self, inputs[0])

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"mean": Param(inputs[0], "zero", trainable=False), "scale": Param(inputs[0], "one", trainable=False)}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return ((x[0] - w[0]) * w[1]).clamp(-FAR, FAR)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return clamped(x[0], w[0], w[1], -FAR, FAR)

    def code(self, *inputs: Shape) -> str:
        return f"StandardisedNumbers({inputs[0][0]})"


class PiecewiseNumbers(nn.Module):
    """Each number as its place among intervals."""

    low: Tensor
    scale: Tensor

    def __init__(self, features: int, intervals: int) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(features, intervals))
        self.register_buffer("scale", torch.ones(features, intervals))

    def forward(self, x: Tensor) -> Tensor:
        return ((x[:, :, None] - self.low) * self.scale).clamp(0, 1)


@dataclass(frozen=True, slots=True)
class Piecewise(Op):
    """clamp((x_d - low_dk) scale_dk, 0, 1) for K intervals: (D,) becomes (D, K)."""

    intervals: int

    prints = (PiecewiseNumbers,)
    drawn_as = "{op.intervals} intervals"

    def shape(self, *inputs: Shape) -> Shape:
        return (*vector(self, inputs[0]), self.intervals)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        shape = inputs[0][0], self.intervals
        return {"low": Param(shape, "zero", trainable=False), "scale": Param(shape, "one", trainable=False)}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return ((x[0][:, :, None] - w[0]) * w[1]).clamp(0, 1)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value, velocity, acceleration = (stream[:, :, None] for stream in x[0])
        return clamped((value, velocity, acceleration), w[0], w[1], 0, 1)

    def code(self, *inputs: Shape) -> str:
        return f"PiecewiseNumbers({inputs[0][0]}, {self.intervals})"


def clamped(x: Jet, shift: Tensor, scale: Tensor, low: float, high: float) -> Jet:
    """The jet of clamp((x - shift) scale, low, high)."""
    value = (x[0] - shift) * scale
    inside = ((value > low) & (value < high)) * scale
    return value.clamp(low, high), x[1] * inside, x[2] * inside


class RowsOfNumbers(nn.Module):
    """A row for each number, a linear function of its values."""

    def __init__(self, features: int, intervals: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, intervals, width) / intervals**0.5)
        self.bias = nn.Parameter(torch.zeros(features, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bdk,dkw->bdw", x, self.weight) + self.bias


@dataclass(frozen=True, slots=True)
class RowOfEach(Op):
    """sum_k x_dk weight_dkw + bias_dw: (D, K) becomes (D, width)."""

    width: int

    linear = True
    prints = (RowsOfNumbers,)
    drawn_as = "rows of numbers"

    def shape(self, *inputs: Shape) -> Shape:
        return tokens(self, inputs[0])[0], self.width

    def params(self, *inputs: Shape) -> dict[str, Param]:
        d, k = inputs[0]
        return {"weight": Param((d, k, self.width), "weight", k, self.width), "bias": Param((d, self.width), "bias", k)}

    def macs(self, *inputs: Shape) -> int:
        d, k = inputs[0]
        return d * k * self.width

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.einsum("bdk,dkw->bdw", x[0], w[0]) + (w[1] if len(w) > 1 else 0)

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]

    def code(self, *inputs: Shape) -> str:
        return f"RowsOfNumbers({inputs[0][0]}, {inputs[0][1]}, {self.width})"


@dataclass(frozen=True, slots=True)
class Total(Op):
    """The sum of each row: (N, E) becomes (N,)."""

    linear = True
    printed_as = "{0}.sum(2)"

    def shape(self, *inputs: Shape) -> Shape:
        return tokens(self, inputs[0])[:1]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].sum(2)


def vector(op: Op, shape: Shape) -> Shape:
    """The shape of a vector; ValueError for another."""
    if len(shape) != 1:
        raise ValueError(f"{op} needs a vector and got an input of shape {shape}")
    return shape
