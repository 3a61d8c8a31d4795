"""Fully connected layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.lockstep import GroupedLinear
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Linear(Op):
    """x W^T + b over the last axis."""

    out_features: int
    bias: bool = True

    kind = "linear"
    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        if not inputs[0]:
            raise ValueError(f"{self} needs an input with at least one axis")
        return (*inputs[0][:-1], self.out_features)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        fan_in = inputs[0][-1]
        weight = Param((self.out_features, fan_in), "weight", fan_in, self.out_features)
        bias = Param((self.out_features,), "bias", fan_in, self.out_features)
        return {"weight": weight} | ({"bias": bias} if self.bias else {})

    def macs(self, *inputs: Shape) -> int:
        return math.prod(inputs[0]) * self.out_features

    def side_by_side(self, count: int, *inputs: Shape) -> Op | None:
        return GroupedLinear(count, self.out_features, self.bias) if len(inputs[0]) == 1 else None

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return F.linear(x[0], *w)

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]

    def code(self, *inputs: Shape) -> str:
        return f"nn.Linear({inputs[0][-1]}, {self.out_features}{'' if self.bias else ', bias=False'})"
