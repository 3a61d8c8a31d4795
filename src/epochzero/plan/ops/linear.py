"""Fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Back, Gradients, Op, Param
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

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        def back(
            gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
        ) -> tuple[Gradients, Gradients]:
            rows = gradient.flatten(0, -2)  # [N, O]
            of_w: Gradients = [rows.mT @ x[0].flatten(0, -2) if params[0] else None]
            if len(w) > 1:
                of_w.append(rows.sum(0) if params[1] else None)
            return [gradient @ w[0] if inputs[0] else None], of_w

        return self.run(x, w), back

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]

    def code(self, *inputs: Shape) -> str:
        return f"nn.Linear({inputs[0][-1]}, {self.out_features}{'' if self.bias else ', bias=False'})"


@dataclass(frozen=True, slots=True)
class GroupedLinear(Op):
    """Several linear layers, each on its own features."""

    count: int
    out_features: int
    bias: bool = True

    kind = "linear"
    linear = True

    @property
    def name(self) -> str:
        return "linear"

    def shape(self, *inputs: Shape) -> Shape:
        return (self.count * self.out_features,)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        features = inputs[0][0] // self.count
        outputs = self.count * self.out_features
        weight = Param((outputs, features), "weight", features, self.out_features)
        return {"weight": weight} | ({"bias": Param((outputs,), "bias", features)} if self.bias else {})

    def macs(self, *inputs: Shape) -> int:
        return inputs[0][0] * self.out_features

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        each = x[0].view(len(x[0]), self.count, -1)  # [B, P, F]
        weight = w[0].view(self.count, self.out_features, -1)  # [P, O, F]
        out = torch.einsum("bpf,pof->bpo", each, weight).flatten(1)  # [B, P * O]
        return out + w[1] if len(w) > 1 else out

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return w[:1]
