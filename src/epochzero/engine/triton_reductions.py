"""GPU kernels of `reductions`: sums in a fixed order, without atomics, so that a network's do not depend on others."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES = 1024
"""numbers that one block of `products` holds of each tensor"""
SAMPLES = 64
"""rows and columns of one block of `on_together`"""
UNITS = 64
"""that it takes at a time"""
SHARE = 4096
"""units that one block adds up"""


@triton.jit
def _products(
    out: tl.tensor, a: tl.tensor, b: tl.tensor, rows: tl.tensor, N: tl.constexpr, BR: tl.constexpr, BN: tl.constexpr
) -> None:
    """BR rows of N numbers."""
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    total = tl.zeros([BR, BN], tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        at = r[:, None] * N + n[None, :]
        known = (r < rows)[:, None] & (n < N)[None, :]
        total += tl.load(a + at, mask=known, other=0.0) * tl.load(b + at, mask=known, other=0.0)
    tl.store(out + r, tl.sum(total, axis=1), mask=r < rows)


def products(a: Tensor, b: Tensor) -> Tensor:
    """[B, M, C] of maps [B, M, C, ...]."""
    out = a.new_empty(a.shape[:3])
    rows, each = out.numel(), a[0, 0, 0].numel()
    wide = min(PLACES, triton.next_power_of_2(each))
    tall = PLACES // wide
    _products[(triton.cdiv(rows, tall),)](out, a, b, rows, each, tall, wide, num_warps=4)
    return out


@triton.jit(do_not_specialize=["maps"])
def _on_together(
    out: tl.tensor,
    x: tl.tensor,
    maps: tl.tensor,
    samples: tl.tensor,
    A: tl.constexpr,
    SHARE: tl.constexpr,
    BS: tl.constexpr,
    BA: tl.constexpr,
) -> None:
    """One map, one share of its units, BS by BS pairs of samples."""
    share, m = tl.program_id(0), tl.program_id(1)
    across = (samples + BS - 1) // BS
    i = tl.program_id(2) // across * BS + tl.arange(0, BS)
    j = tl.program_id(2) % across * BS + tl.arange(0, BS)
    total = tl.zeros([BS, BS], tl.float32)
    for start in range(share * SHARE, min((share + 1) * SHARE, A), BA):
        n = start + tl.arange(0, BA)
        rows = x + (i.to(tl.int64) * maps + m)[:, None] * A + n[None, :]
        columns = x + (j.to(tl.int64) * maps + m)[:, None] * A + n[None, :]
        one = tl.load(rows, mask=(i < samples)[:, None] & (n < A)[None, :], other=0.0) > 0
        other = tl.load(columns, mask=(j < samples)[:, None] & (n < A)[None, :], other=0.0) > 0
        total = tl.dot(one.to(tl.bfloat16), tl.trans(other.to(tl.bfloat16)), total)
    to = out + ((share * maps + m).to(tl.int64) * samples + i)[:, None] * samples + j[None, :]
    tl.store(to, total, mask=(i < samples)[:, None] & (j < samples)[None, :])


def on_together(x: Tensor) -> Tensor:
    """[M, B, B] of maps [B, M, A]."""
    samples, maps, units = x.shape
    shares, across = triton.cdiv(units, SHARE), triton.cdiv(samples, SAMPLES)
    partial = torch.empty((shares, maps, samples, samples), device=x.device)
    _on_together[(shares, maps, across * across)](partial, x, maps, samples, units, SHARE, SAMPLES, UNITS, num_warps=4)
    return partial.sum(0) if shares > 1 else partial[0]
