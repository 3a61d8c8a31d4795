"""Ops without parameters that only wire: inputs, sums, skips and cut edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from epochzero.plan.ops.base import Op
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Input(Op):
    """Where data enters the network."""

    size: Shape

    def shape(self, *inputs: Shape) -> Shape:
        return self.size


@dataclass(frozen=True, slots=True)
class Add(Op):
    """The sum of its inputs."""

    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(set(inputs)) != 1:
            raise ValueError(f"cannot add maps of different shapes {inputs}")
        return inputs[0]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        total = x[0]
        for term in x[1:]:
            total = total + term
        return total

    def label(self) -> str:
        return "+"

    def expression(self, *names: str) -> str:
        return " + ".join(names)


@dataclass(frozen=True, slots=True)
class Identity(Op):
    """A skip connection."""

    kind = "identity"
    linear = True

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0]

    def label(self) -> str:
        return "skip"

    def code(self, *inputs: Shape) -> str:
        return "nn.Identity()"


@dataclass(frozen=True, slots=True)
class Zero(Op):
    """A cut edge: zeros of the input's shape, on which nothing depends."""

    kind = "zero"
    linear = True

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.zeros_like(x[0])

    def expression(self, *names: str) -> str:
        return f"torch.zeros_like({names[0]})"
