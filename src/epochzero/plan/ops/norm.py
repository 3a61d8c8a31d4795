"""Normalisation over the batch or over each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Back, Jet, Joined, Op, Param, RoutineStep, joined, options
from epochzero.plan.ops.batch_statistics import batch_norm, recorded_batch_norm
from epochzero.types import Shape

Statistics = Literal["batch", "tracked", "running"]
"""batch: those of the batch, not stored; tracked: the same, and stored (training); running: the stored ones
(evaluation)."""


@dataclass(frozen=True, slots=True)
class BatchNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and variance over batch and space."""

    eps: float = 1e-5
    momentum: float = 0.1
    affine: bool = True
    statistics: Statistics = "batch"

    kind = "norm"
    channelwise = True
    mixes_samples = True
    drawn_as = "norm"

    def routine_step(self, networks: int = 1) -> RoutineStep:
        return "norm"

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
        streams = standardised(x[0], [1, *range(3, value.dim() + 1)], self.eps) * weight  # [3, B, C, ...]
        streams[0].add_(bias)
        return Joined(streams.flatten(0, 1))

    def code(self, *inputs: Shape) -> str:
        extras = [("eps", self.eps, 1e-5), ("momentum", self.momentum, 0.1), ("affine", self.affine, True)]
        return f"nn.BatchNorm{'2d' if len(inputs[0]) == 3 else '1d'}({inputs[0][0]}{options(*extras)})"


@dataclass(frozen=True, slots=True)
class LayerNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last axis."""

    eps: float = 1e-5
    affine: bool = True

    kind = "norm"
    drawn_as = "layer norm"

    def params(self, *inputs: Shape) -> dict[str, Param]:
        e = inputs[0][-1:]
        return {"weight": Param(e, "one"), "bias": Param(e, "zero")} if self.affine else {}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        weight, bias = w if self.affine else (None, None)
        return F.layer_norm(x[0], x[0].shape[-1:], weight, bias, self.eps)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        weight, bias = w if self.affine else (1.0, 0.0)
        streams = standardised(x[0], [-1], self.eps) * weight  # [3, B, ..., E]
        streams[0].add_(bias)
        return Joined(streams.flatten(0, 1))

    def code(self, *inputs: Shape) -> str:
        extras = [("eps", self.eps, 1e-5), ("elementwise_affine", self.affine, True)]
        return f"nn.LayerNorm({inputs[0][-1]}{options(*extras)})"


@dataclass(frozen=True, slots=True)
class RMSNorm(Op):
    """y = x / sqrt(mean of x^2 + eps) * weight over the last axis. Zhang, Sennrich 2019. arXiv:1910.07467"""

    eps: float = 1e-6

    kind = "norm"
    drawn_as = "RMS norm"

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"weight": Param(inputs[0][-1:], "one")}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return F.rms_norm(x[0], x[0].shape[-1:], w[0], self.eps)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return Joined((standardised(x[0], [-1], self.eps, centre=False) * w[0]).flatten(0, 1))

    def code(self, *inputs: Shape) -> str:
        return f"nn.RMSNorm({inputs[0][-1]}{options(('eps', self.eps, None))})"


def standardised(x: Jet, axes: list[int], eps: float, centre: bool = True) -> Tensor:
    """[3, B, ...] (x - mean) / sqrt(var + eps) with two derivatives, mean and variance over these axes of [3, B, ...].

    Without `centre` the mean counts as 0. With u, v, w the three streams, centred and divided by that root, and
    a = mean(u v) and s = mean(v v + u w):

        y = u        y' = v - a u        y'' = w - 2 a v + (3 a^2 - s) u
    """
    streams: Tensor = joined(x).unflatten(0, (3, -1))  # type: ignore[no-untyped-call]
    centred = streams - streams.mean(axes, keepdim=True) if centre else streams
    u, v, w = centred * ((centred[:1] * centred[:1]).mean(axes, keepdim=True) + eps).rsqrt()
    a, s = torch.stack([u * v, torch.addcmul(v * v, u, w)]).mean(axes, keepdim=True)
    velocity = torch.addcmul(v, a, u, value=-1)
    acceleration = torch.addcmul(w, a, v, value=-2).addcmul(3 * a * a - s, u)
    return torch.stack([u, velocity, acceleration])
