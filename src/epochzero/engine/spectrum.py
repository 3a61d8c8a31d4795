r"""Eigenvalues of symmetric matrices; the two ends of the spectrum of positive semi-definite ones.

On a GPU, libraries compute the eigenvalues of matrices larger than 32 x 32 one matrix after the other, and wait for the
result. So matrices up to 64 x 64 use our own kernels (`triton_spectrum`), and the two ends of larger ones are computed
by squaring, which is fast on a GPU:

    B^(2^k) / tr B^(2^k)  ->  the projection onto the largest eigenvalue of B,   lambda = tr(A B^(2^k)) / tr B^(2^k)

with B = A for the largest, and B = 2 lambda_max I - A for the smallest. An eigenvalue mu of B next to the largest one
still has the weight (mu / lambda)^(2^k): after 50 squarings that is negligible unless they agree to fifteen digits,
and then the result is the same. Both ends are as exact as double precision makes those of A: up to about 1e-16
lambda_max.

Nuclear norms, sums of singular values sigma_i, come from the smaller Gram matrix of A, whose eigenvalues are sigma_i^2.
Rounding moves these by about N eps sigma_max^2, so smaller ones count as zero, and the norm is off by at most
N sqrt(N eps) sigma_max: 9e-5 of sigma_max for N = 320, and much less unless many singular values are about that small.
On a GPU large matrices take an iteration of products alone, towards the orthogonal factor U of A = U H:

    X <- X (15 I - 10 X^T X + 3 (X^T X)^2) / 8,   X_0 = A / ||A||_F,   ||A||_* = tr H = tr U^T A

A singular value of X below 1/2 grows by at least 1.5 in each step, so after 40 steps only those below 1e-7 are missing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epochzero.engine.gpu import arena
from epochzero.plan.ops.base import signed

SQUARINGS = 50
AT_A_TIME = 3
"""squarings between normalisations of the trace to 1, so that the largest eigenvalue does not underflow"""
SMALL = 32
"""up to this size, libraries batch eigenvalues on a GPU"""
LARGE = 64
"""up to this size, our kernels do"""
STEPS = 40
"""of the iteration towards an orthogonal factor"""


def eigenvalues(matrix: Tensor) -> Tensor:
    """Returns the eigenvalues [..., N] of matrices [..., N, N], in ascending order."""
    if _ours(matrix):
        return _ByKernels.apply(matrix, False)  # type: ignore[no-any-return,no-untyped-call]
    return torch.linalg.eigvalsh(matrix)  # type: ignore[no-any-return]


def extreme_eigenvalues(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest eigenvalue."""
    if _ours(matrix):
        values = _ByKernels.apply(matrix, True)  # type: ignore[no-untyped-call]
    elif matrix.is_cuda and matrix.shape[-1] > SMALL:
        return by_squaring(matrix)
    else:
        values = torch.linalg.eigvalsh(matrix)
    return values[..., 0], values[..., -1]


def _ours(matrix: Tensor) -> bool:
    return arena.runs_here(matrix) and matrix.dtype == torch.float64 and matrix.shape[-1] <= LARGE


class _ByKernels(torch.autograd.Function):
    """Eigenvalues of many matrices at once, also under `vmap`."""

    @staticmethod
    @signed
    def forward(matrix: Tensor, ends: bool) -> Tensor:
        values: Tensor = arena.kernels().eigenvalues(matrix.reshape(-1, *matrix.shape[-2:]), ends)
        return values.view(*matrix.shape[:-2], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps nothing: it has no gradient."""

    @staticmethod
    def vmap(_: Any, in_dims: tuple[int, None], matrix: Tensor, ends: bool) -> tuple[Tensor, int]:
        return _ByKernels.apply(matrix.movedim(in_dims[0], 0), ends), 0  # type: ignore[no-untyped-call]


def nuclear_norms(matrices: Tensor) -> Tensor:
    """Returns the nuclear norms [...] of matrices [..., M, N], in double precision."""
    tall = (matrices if matrices.shape[-2] >= matrices.shape[-1] else matrices.mT).double()
    size = tall.abs().amax((-2, -1))  # [...]
    scaled = tall / torch.where(size > 0, size, 1)[..., None, None]
    if matrices.is_cuda and scaled.shape[-1] > LARGE:
        return size * by_orthogonal_factor(scaled)
    squares = eigenvalues(scaled.mT @ scaled)
    noise = squares.shape[-1] * torch.finfo(squares.dtype).eps * squares[..., -1:]
    return size * torch.where(squares > noise, squares, 0).sqrt().sum(-1)


def by_orthogonal_factor(matrices: Tensor) -> Tensor:
    """Returns the nuclear norms of matrices with M >= N by products of matrices alone."""
    size = torch.linalg.matrix_norm(matrices, keepdim=True)
    x = matrices / torch.where(size > 0, size, 1)
    for _ in range(STEPS):
        gram = x.mT @ x
        x = x @ (3 * gram @ gram - 10 * gram) / 8 + x * (15 / 8)
    return (x * matrices).sum((-2, -1))


def by_squaring(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest eigenvalue by repeated squaring."""
    size = _trace(matrix)  # lambda_max is between this / n and this
    scaled = torch.where(size > 0, matrix / torch.where(size > 0, size, 1), 0)
    high = _rayleigh(scaled, scaled)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    low = _rayleigh(scaled, 2 * high * eye - scaled)
    return (low * size)[..., 0, 0], (high * size)[..., 0, 0]


def _rayleigh(matrix: Tensor, power: Tensor) -> Tensor:
    """Returns tr(A P) / tr(P) for a high power P of another matrix with the same eigenvectors."""
    for squaring in range(SQUARINGS):
        if squaring % AT_A_TIME == 0:
            size = _trace(power)
            power = torch.where(size > 0, power / torch.where(size > 0, size, 1), 0)
        power = power @ power
    size = _trace(power)
    return torch.where(size > 0, (matrix * power).sum((-2, -1), keepdim=True) / torch.where(size > 0, size, 1), 0)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
