"""Activations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from epochzero.plan.ops.base import Jet, Op
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class ReLU(Op):
    """max(x, 0)."""

    kind = "activation"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.relu(x[0])

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value, velocity, acceleration = x[0]
        on = (value > 0).to(value.dtype)
        return value * on, velocity * on, acceleration * on

    def code(self, *inputs: Shape) -> str:
        return "nn.ReLU()"
