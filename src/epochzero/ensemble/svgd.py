r"""SVGD-RD: particles that climb a density, with a repulsion set by delta.

    phi(x_i) = 1/n sum_j [ k(x_j, x_i) grad log p(x_j) + grad_{x_j} k(x_j, x_i) - delta grad_{x_i} k(x_j, x_i) ]
    v <- momentum v + phi,   x <- x + rate v                                                                     (B.10)

For the kernel k(x, y) = exp(-|x - y|^2 / h) the last two terms are (1 + delta) grad_{x_j} k: repulsion, twice that of
SVGD at delta = 1, none at -1, attraction below. (Proposition 5.1 of the thesis prints grad_{x_i} for the second term,
with which every delta < 1 would attract; its own derivation and Figure 5.2 say otherwise.) The thesis gives no
bandwidth. Here it is h = med^2 / log n, med the median distance of two particles, anew in each step, and at least .1:
for particles close together, the attraction of delta = -2 in steps of .1 with momentum .9 overshoots for
h < 2 * .1 / 3.8. With one particle any h gives the same update, and h is 1.

Liu, Wang. Stein variational gradient descent. NeurIPS 2016. arXiv:1608.04471
Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from epochzero.errors import UserError

Score = Callable[[Tensor], Tensor]
"""the gradient of the log density at each particle, [..., n, d] to [..., n, d]"""
LEAST = 0.1
"""bandwidth"""


def median_bandwidth(squares: Tensor) -> Tensor:
    """`med^2 / log n`, but at least `LEAST`, from squared distances [..., n, n]."""
    n = squares.shape[-1]
    if n < 2:
        return squares.new_ones(*squares.shape[:-2], 1, 1)
    rows, columns = torch.triu_indices(n, n, 1, device=squares.device)
    ordered = squares[..., rows, columns].sqrt().sort(-1).values  # [..., pairs]
    pairs = len(rows)
    median = (ordered[..., (pairs - 1) // 2] + ordered[..., pairs // 2])[..., None, None] / 2  # [..., 1, 1]
    return (median.square() / math.log(n)).clamp_min(LEAST)


def direction(x: Tensor, score: Tensor, delta: Tensor | float) -> Tensor:
    """Phi for particles x [..., n, d], from the gradients of the log density there."""
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()  # [..., n, n]
    h = median_bandwidth(squares)
    kernel = torch.exp(-squares / h)
    repulsion = 2 / h * (kernel.sum(-1, keepdim=True) * x - kernel @ x)  # [..., n, d], sum_j grad_{x_j} k(x_j, x_i)
    return (kernel @ score + (1 + torch.as_tensor(delta, dtype=x.dtype)) * repulsion) / x.shape[-2]


def svgd_rd(
    score: Score,
    particles: Tensor,
    delta: Tensor | float,
    steps: int = 1000,
    rate: float = 0.1,
    momentum: float = 0.9,
) -> Tensor:
    """The final particles [..., n, d]. Leading axes are independent runs, each with its own delta [..., 1, 1]."""
    if particles.dim() < 2 or not particles.numel():
        raise UserError(f"Particles are at least one point: [..., n, d], not {list(particles.shape)}.")
    x, velocity = particles.double(), torch.zeros_like(particles, dtype=torch.float64)
    for _ in range(steps):
        velocity = momentum * velocity + direction(x, score(x), delta)
        x = x + rate * velocity
    if not x.isfinite().all():
        raise UserError("The particles of SVGD diverged: take a smaller rate, or a delta nearer 0.")
    return x
