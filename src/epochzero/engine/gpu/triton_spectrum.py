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

from epochzero.engine.gpu.triton_arena import launch

HALVINGS = 64
"""halvings of the interval around each eigenvalue: double precision has no use for more"""
THREADS = 32
"""threads of a block that bisects"""


@triton.jit
def _tridiagonal(
    diagonal: tl.tensor, subdiagonal: tl.tensor, matrices: tl.tensor, N: tl.constexpr, BN: tl.constexpr
) -> None:
    """Writes the diagonal of T [N] and its subdiagonal [N], the last of which is 0."""
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
    tl.store(subdiagonal + m * N + i, tl.sum(tl.where(columns == rows + 1, a, 0.0), 1), mask=i < N)


@triton.jit(do_not_specialize=["total"])
def _bisect(
    values: tl.tensor,
    diagonal: tl.tensor,
    subdiagonal: tl.tensor,
    total: tl.tensor,
    N: tl.constexpr,
    WANTED: tl.constexpr,
    BLOCK: tl.constexpr,
    HALVINGS: tl.constexpr,
) -> None:
    """The eigenvalues of T, each by a thread of its own: all N of them, or the first and the last."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = n < total
    wanted = n % WANTED if WANTED == N else n % 2 * (N - 1)
    begin = (n // WANTED).to(tl.int64) * N
    diagonal += begin
    subdiagonal += begin
    widest = tl.zeros([BLOCK], values.dtype.element_ty)
    left = widest
    for j in range(N):
        right = tl.abs(tl.load(subdiagonal + j, mask=known, other=0.0))
        reach = tl.abs(tl.load(diagonal + j, mask=known, other=0.0)) + left + right
        widest = tl.maximum(widest, reach, propagate_nan=tl.PropagateNan.ALL)
        left = right
    low, high = -widest, widest  # no eigenvalue is further away from 0
    tiny = widest * 1e-290 + 1e-300
    for _ in range(HALVINGS):
        x = (low + high) / 2
        pivot = tl.load(diagonal, mask=known, other=0.0) - x
        below = (pivot < 0).to(tl.int32)
        for j in range(1, N):
            pivot = tl.where(tl.abs(pivot) < tiny, -tiny, pivot)
            off = tl.load(subdiagonal + j - 1, mask=known, other=0.0)
            pivot = tl.load(diagonal + j, mask=known, other=0.0) - x - off * off / pivot
            below += (pivot < 0).to(tl.int32)
        high = tl.where(below > wanted, x, high)
        low = tl.where(below > wanted, low, x)
    tl.store(values + n, (low + high) / 2, mask=known)


def eigenvalues(matrices: Tensor, ends: bool) -> Tensor:
    """Returns the eigenvalues [M, N], ascending, of symmetric matrices [M, N, N] in double precision; or two `ends`."""
    count, size, _ = matrices.shape
    matrices = matrices.contiguous()
    diagonal, subdiagonal = (matrices.new_empty((count, size)) for _ in range(2))
    launch(_tridiagonal, (count,), diagonal, subdiagonal, matrices, size, triton.next_power_of_2(size), num_warps=4)
    values = matrices.new_empty((count, 2 if ends else size))
    total = values.numel()
    launch(
        _bisect, (triton.cdiv(total, THREADS),), values, diagonal, subdiagonal, total, size, values.shape[1], THREADS,
        HALVINGS, num_warps=1,
    )  # fmt: skip
    return values
