"""Normalisation over the batch or over each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Back, Jet, Op, Param
from epochzero.plan.ops.batch_statistics import batch_norm, recorded_batch_norm
from epochzero.types import Shape

Statistics = Literal["batch", "tracked", "running"]
"""batch: of the batch at hand, nothing remembered; tracked: the same and remembered (training); running: as
remembered (evaluation)."""


@dataclass(frozen=True, slots=True)
class BatchNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and variance over batch and space."""

    eps: float = 1e-5
    momentum: float = 0.1
    affine: bool = True
    statistics: Statistics = "batch"

    kind = "norm"
    channelwise = True

    def params(self, *inputs: Shape) -> dict[str, Param]:
        c = inputs[0][:1]
        affine = {"weight": Param(c, "one"), "bias": Param(c, "zero")} if self.affine else {}
        mean, var = Param(c, "zero", trainable=False), Param(c, "one", trainable=False)
        return affine | {"running_mean": mean, "running_var": var}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        *affine, mean, var = w
        weight, bias = affine if self.affine else (None, None)
        if self.statistics == "batch":
            return batch_norm(x[0], weight, bias, self.eps)
        tracked = self.statistics == "tracked"
        return F.batch_norm(x[0], mean, var, weight, bias, tracked, self.momentum, self.eps)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if self.statistics != "batch":
            return None
        weight, bias = w[:2] if self.affine else (None, None)
        return recorded_batch_norm(x[0], weight, bias, self.eps)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        *affine, mean, var = w
        value, velocity, acceleration = x[0]
        wide = (1, -1) + (1,) * (value.dim() - 2)
        weight, bias = (p.view(wide) for p in affine) if self.affine else (1.0, 0.0)
        if self.statistics == "running":
            scale = weight * (var.view(wide) + self.eps).rsqrt()  # [1, C, 1, 1]
            return (value - mean.view(wide)) * scale + bias, velocity * scale, acceleration * scale
        axes = [0, *range(2, value.dim())]
        y0, y1, y2 = standardised(x[0], axes, self.eps)
        return y0 * weight + bias, y1 * weight, y2 * weight

    def label(self) -> str:
        return "norm"

    def code(self, *inputs: Shape) -> str:
        extras = [("eps", self.eps, 1e-5), ("momentum", self.momentum, 0.1), ("affine", self.affine, True)]
        given = "".join(f", {name}={value}" for name, value, usual in extras if value != usual)
        return f"nn.BatchNorm{'2d' if len(inputs[0]) == 3 else '1d'}({inputs[0][0]}{given})"


@dataclass(frozen=True, slots=True)
class LayerNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last axis."""

    eps: float = 1e-5
    affine: bool = True

    kind = "norm"

    def params(self, *inputs: Shape) -> dict[str, Param]:
        e = inputs[0][-1:]
        return {"weight": Param(e, "one"), "bias": Param(e, "zero")} if self.affine else {}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        weight, bias = w if self.affine else (None, None)
        return F.layer_norm(x[0], x[0].shape[-1:], weight, bias, self.eps)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        weight, bias = w if self.affine else (1.0, 0.0)
        y0, y1, y2 = standardised(x[0], [-1], self.eps)
        return y0 * weight + bias, y1 * weight, y2 * weight

    def label(self) -> str:
        return "layer norm"

    def code(self, *inputs: Shape) -> str:
        extras = [("eps", self.eps, 1e-5), ("elementwise_affine", self.affine, True)]
        given = "".join(f", {name}={value}" for name, value, usual in extras if value != usual)
        return f"nn.LayerNorm({inputs[0][-1]}{given})"


def standardised(x: Jet, axes: list[int], eps: float) -> Jet:
    """(x - mean) / sqrt(var + eps) with two derivatives, mean and variance over these axes."""
    c0, c1, c2 = (s - s.mean(axes, keepdim=True) for s in x)
    v0 = (c0 * c0).mean(axes, keepdim=True) + eps
    v1 = 2 * (c0 * c1).mean(axes, keepdim=True)
    v2 = 2 * (c1 * c1 + c0 * c2).mean(axes, keepdim=True)
    r0 = v0.rsqrt()
    r1 = -v1 * r0**3 / 2
    r2 = 3 * v1**2 * r0**5 / 4 - v2 * r0**3 / 2
    return c0 * r0, c1 * r0 + c0 * r1, c2 * r0 + 2 * c1 * r1 + c0 * r2
