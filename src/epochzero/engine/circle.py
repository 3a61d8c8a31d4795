r"""A random circle in input space, with its derivatives.

    g(t) = R (o1 cos t + o2 sin t),   R = sqrt(N q)     o1, o2 orthonormal in R^N

Poole, Lahiri, Raghu, Sohl-Dickstein, Ganguli. Exponential expressivity in deep neural networks through
transient chaos. NeurIPS 2016. arXiv:1606.05340
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from epochzero.plan import generator
from epochzero.plan.ops.base import Jet
from epochzero.types import Shape


def circle(shape: Shape, points: int, radius: float, seed: int, draw: int) -> Jet:
    """Returns points spaced evenly on a circle, their velocities and accelerations, each [points, *shape]."""
    n = math.prod(shape)
    spread = torch.randn(n, 2, generator=generator(seed, "circle", draw), dtype=torch.float64)
    across: Tensor = math.sqrt(n * radius) * torch.linalg.qr(spread).Q.mT  # [2, N] orthogonal rows
    angles = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
    cos, sin = angles.cos(), angles.sin()
    value = torch.stack([cos, sin], 1) @ across  # [points, N]
    velocity = torch.stack([-sin, cos], 1) @ across  # [points, N]
    return tuple(stream.float().view(points, *shape) for stream in (value, velocity, -value))  # type: ignore[return-value]
