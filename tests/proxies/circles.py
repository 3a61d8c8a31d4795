"""The output curve of a network as its inputs go round a circle, in two slow ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import jvp

from epochzero.engine.circle import circle
from epochzero.types import Shape
from tests.proxies.nets import Twin

Curve = Callable[[Tensor], Tensor]
"""an angle to the logits [points, K] of all the points, turned by it"""


def output_curve(
    twin: Twin, shape: Shape, points: int, q: float, seed: int = 0, draw: int = 0, alone: bool = False
) -> Curve:
    """A point g and its velocity g' span the circle: turned by t, the point is g cos t + g' sin t."""
    at, ahead, _ = (part.double() for part in circle(shape, points, q, seed, draw))  # [points, *shape] each

    def turned(angle: Tensor) -> Tensor:
        there = at * angle.cos() + ahead * angle.sin()
        logits: Tensor = torch.cat([twin(point[None]) for point in there]) if alone else twin(there)
        return logits

    return turned


def by_nested_jvp(curve: Curve) -> tuple[Tensor, Tensor, Tensor]:
    """Value, velocity and acceleration at angle 0."""
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)

    def moving(angle: Tensor) -> Any:
        return jvp(curve, (angle,), (one,))

    (value, velocity), (_, acceleration) = cast("Any", jvp(moving, (zero,), (one,)))
    return value, velocity, acceleration


def by_differences(curve: Curve, step: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """Value, velocity and acceleration at angle 0."""
    with torch.no_grad():
        behind, here, ahead = (curve(torch.tensor(angle, dtype=torch.float64)) for angle in (-step, 0.0, step))
    return here, (ahead - behind) / (2 * step), (ahead - 2 * here + behind) / step**2


def kappa(velocity: list[float], acceleration: list[float]) -> float:
    """Returns the curvature of a curve: |a without its part along v| / |v|^2."""
    speed_squared = sum(v * v for v in velocity)
    along = sum(v * a for v, a in zip(velocity, acceleration, strict=True)) / speed_squared
    across = [a - along * v for v, a in zip(velocity, acceleration, strict=True)]
    return float(sum(c * c for c in across) ** 0.5 / speed_squared)


def mean_kappa(velocity: Tensor, acceleration: Tensor) -> float:
    """Over the points of a curve, [points, K] each."""
    each = [kappa(v, a) for v, a in zip(velocity.tolist(), acceleration.tolist(), strict=True)]
    return sum(each) / len(each)
