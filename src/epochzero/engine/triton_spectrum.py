"""GPU kernels of `spectrum`: all eigenvalues of many small symmetric matrices, each by a block of threads of its own.

A = Q T Q^T      Householder's reflections make it tridiagonal, one column after the other
T                bisection: the number of eigenvalues below x is that of negative pivots of T - x I (Sturm, 1829)
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from epochzero.plan.ops.triton_arena import launch

HALVINGS = 64
"""of the interval around each eigenvalue: as many as double precision has use for"""


@triton.jit
def _tridiagonal(
    diagonal: tl.tensor, beside: tl.tensor, matrices: tl.tensor, N: tl.constexpr, BN: tl.constexpr
) -> None:
    """The diagonal of T [N], and what stands beside it [N], the last of which is 0."""
    m = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BN)
    rows, columns = i[:, None], i[None, :]
    a = tl.load(matrices + m * (N * N) + rows * N + columns, mask=(rows < N) & (columns < N), other=0.0)
    for k in range(N - 2):
        x = tl.sum(tl.where((columns == k) & (rows > k), a, 0.0), 1)  # [BN] what is below the diagonal
        first = tl.sum(tl.where(i == k + 1, x, 0.0), 0)
        length = tl.sqrt(tl.sum(x * x, 0))
        to = tl.where(first > 0, -length, length)
        v = tl.where(i == k + 1, x - to, x)
        size = tl.sum(v * v, 0)
        twice = tl.where(size > 0, 2 / tl.where(size > 0, size, 1.0), 0.0)
        p = twice * tl.sum(a * v[None, :], 1)
        w = p - twice / 2 * tl.sum(v * p, 0) * v
        a -= v[:, None] * w[None, :] + w[:, None] * v[None, :]
    tl.store(diagonal + m * N + i, tl.sum(tl.where(rows == columns, a, 0.0), 1), mask=i < N)
    tl.store(beside + m * N + i, tl.sum(tl.where(columns == rows + 1, a, 0.0), 1), mask=i < N)


@triton.jit
def _bisect(
    found: tl.tensor,
    diagonal: tl.tensor,
    beside: tl.tensor,
    N: tl.constexpr,
    BN: tl.constexpr,
    HALVINGS: tl.constexpr,
) -> None:
    """Every eigenvalue of T at once, the i-th by the i-th thread."""
    m = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BN)
    diagonal += m * N
    beside += m * N
    d = tl.load(diagonal + i, mask=i < N, other=0.0)
    right = tl.abs(tl.load(beside + i, mask=i < N, other=0.0))
    left = tl.abs(tl.load(beside + i - 1, mask=(i > 0) & (i < N), other=0.0))
    widest = tl.max(tl.abs(d) + left + right, 0)  # no eigenvalue is further away from 0
    low = tl.zeros([BN], d.dtype) - widest
    high = tl.zeros([BN], d.dtype) + widest
    tiny = widest * 1e-290 + 1e-300
    for _ in range(HALVINGS):
        x = (low + high) / 2
        pivot = tl.load(diagonal) - x
        below = (pivot < 0).to(tl.int32)
        for j in range(1, N):
            pivot = tl.where(tl.abs(pivot) < tiny, -tiny, pivot)
            off = tl.load(beside + j - 1)
            pivot = tl.load(diagonal + j) - x - off * off / pivot
            below += (pivot < 0).to(tl.int32)
        high = tl.where(below > i, x, high)
        low = tl.where(below > i, low, x)
    tl.store(found + m * N + i, (low + high) / 2, mask=i < N)


def eigenvalues(matrices: Tensor) -> Tensor:
    """[M, N] in ascending order, of symmetric matrices [M, N, N] in double precision."""
    count, size, _ = matrices.shape
    matrices = matrices.contiguous()
    diagonal, beside, found = (matrices.new_empty((count, size)) for _ in range(3))
    wide = triton.next_power_of_2(size)
    launch(_tridiagonal, (count,), diagonal, beside, matrices, size, wide, num_warps=4)
    launch(_bisect, (count,), found, diagonal, beside, size, wide, HALVINGS, num_warps=max(1, wide // 32))
    return found
