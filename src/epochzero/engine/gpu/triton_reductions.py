"""GPU kernels of `reductions`: sums in a fixed order, without atomics, so that a network's do not depend on others."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu.arena import Source
from epochzero.engine.gpu.triton_arena import address, beginning, launch

PLACES = 1024
"""numbers that one block of `products` holds of each tensor"""
SAMPLES = 64
"""rows and columns of one block of `agreements`"""
UNITS = 64
"""units that it reads at a time"""
SHARE = 4096
"""units that one block adds up"""


@triton.jit
def _products(
    out: tl.tensor, a: tl.tensor, b: tl.tensor, rows: tl.tensor, each: tl.tensor, BR: tl.constexpr, BN: tl.constexpr
) -> None:
    """BR rows of `each` numbers: not a constant, since networks have many sizes of maps."""
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    total = tl.zeros([BR, BN], tl.float32)
    for start in range(0, each, BN):
        n = start + tl.arange(0, BN)
        at = r[:, None] * each + n[None, :]
        known = (r < rows)[:, None] & (n < each)[None, :]
        total += tl.load(a + at, mask=known, other=0.0) * tl.load(b + at, mask=known, other=0.0)
    tl.store(out + r, tl.sum(total, axis=1), mask=r < rows)


def products(a: Tensor, b: Tensor) -> Tensor:
    """[B, M, C] of maps [B, M, C, ...]."""
    out = a.new_empty(a.shape[:3])
    rows, each = out.numel(), a[0, 0, 0].numel()
    wide = min(PLACES, triton.next_power_of_2(each))
    tall = PLACES // wide
    launch(_products, (triton.cdiv(rows, tall),), out, a, b, rows, each, tall, wide, num_warps=4)
    return out


@triton.jit(do_not_specialize=["gap_a", "step_a", "gap_b", "step_b", "maps", "images"])
def _products_at(
    out: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    slots_a: tl.tensor,
    gap_a: tl.int64,
    step_a: tl.int64,
    slots_b: tl.tensor,
    gap_b: tl.int64,
    step_b: tl.int64,
    maps: tl.tensor,
    images: tl.tensor,
    N: tl.constexpr,
    C: tl.constexpr,
    ALIGNED: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
) -> None:
    """Of one image of one map [N, C], the sums over N."""
    image, m = tl.program_id(0), tl.program_id(1)
    size = images * (N * C)
    a += beginning(slots_a, m, gap_a, step_a, size, ALIGNED) + image.to(tl.int64) * (N * C)
    b += beginning(slots_b, m, gap_b, step_b, size, ALIGNED) + image.to(tl.int64) * (N * C)
    c = tl.arange(0, BC)
    total = tl.zeros([BN, BC], out.dtype.element_ty)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        at = n[:, None] * C + c[None, :]
        known = (n < N)[:, None] & (c < C)[None, :]
        total += tl.load(a + at, mask=known, other=0.0) * tl.load(b + at, mask=known, other=0.0)
    tl.store(out + (image * maps + m) * C + c, tl.sum(total, 0), mask=c < C)


def products_at(first: Source, first_slots: Tensor, second: Source, second_slots: Tensor) -> Tensor:
    """[B, M, C] of maps [B, H, W, C] in these slots."""
    _, images, height, width, channels = first.arena.shape
    maps, wide = len(first_slots), max(16, triton.next_power_of_2(channels))
    out = first.arena.new_empty((images, maps, channels))
    (gap_a, step_a, aligned_a), (gap_b, step_b, aligned_b) = address(first), address(second)
    launch(
        _products_at, (images, maps), out, first.arena, second.arena, first_slots, gap_a, step_a, second_slots,
        gap_b, step_b, maps, images, height * width, channels, min(aligned_a, aligned_b), PLACES * 2 // wide, wide,
        num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["maps", "gap", "step"])
def _agreements(
    out: tl.tensor,
    x: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    maps: tl.tensor,
    samples: tl.tensor,
    units: tl.tensor,
    TABLE: tl.constexpr,
    ALIGNED: tl.constexpr,
    SINGLE: tl.constexpr,
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
    between = units
    if TABLE:
        x += beginning(slots, m, gap, step, samples * units, ALIGNED)
    else:
        x += m.to(tl.int64) * units
        between *= maps
    for start in range(share * SHARE, min((share + 1) * SHARE, units), BA):
        n = start + tl.arange(0, BA)
        rows = x + i.to(tl.int64)[:, None] * between + n[None, :]
        one = tl.load(rows, mask=(i < samples)[:, None] & (n < units)[None, :], other=0.0)
        real = (n < units)[None, :]
        one = tl.where(real, tl.where(one > 0, 1.0, -1.0), 0.0).to(tl.float16)
        other = one
        if not SINGLE:
            columns = x + j.to(tl.int64)[:, None] * between + n[None, :]
            other = tl.load(columns, mask=(j < samples)[:, None] & (n < units)[None, :], other=0.0)
            other = tl.where(real, tl.where(other > 0, 1.0, -1.0), 0.0).to(tl.float16)
        total = tl.dot(one, tl.trans(other), total)
    total = (total + (min((share + 1) * SHARE, units) - share * SHARE)) / 2
    to = out + ((share * maps + m).to(tl.int64) * samples + i)[:, None] * samples + j[None, :]
    tl.store(to, total, mask=(i < samples)[:, None] & (j < samples)[None, :])


def agreements(x: Tensor) -> Tensor:
    """[M, B, B] of maps [B, M, A]."""
    samples, maps, units = x.shape
    return _counted(x, x, (0, 0, 0), maps, samples, units, False)


def agreements_at(place: Source, slots: Tensor) -> Tensor:
    """[M, B, B] of maps [B, H, W, C] in these slots."""
    _, samples, *size = place.arena.shape
    return _counted(place.arena, slots, address(place), len(slots), samples, math.prod(size), True)


def _counted(
    x: Tensor, slots: Tensor, where: tuple[int, int, int], maps: int, samples: int, units: int, table: bool
) -> Tensor:
    shares, across = triton.cdiv(units, SHARE), triton.cdiv(samples, SAMPLES)
    partial = torch.empty((shares, maps, samples, samples), device=x.device)
    gap, step, aligned = where
    launch(
        _agreements, (shares, maps, across * across), partial, x, slots, gap, step, maps, samples, units, table,
        aligned, across == 1, SHARE, SAMPLES, UNITS, num_warps=4,
    )  # fmt: skip
    return partial.sum(0) if shares > 1 else partial[0]


@triton.jit(do_not_specialize=["gap", "step"])
def _mark(
    shown: tl.tensor,
    x: tl.tensor,
    owners: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    patterns: tl.tensor,
    A: tl.constexpr,
    SAMPLES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """BLOCK units of one map: which of the samples switch each of them on."""
    m = tl.program_id(1)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x += beginning(slots, m, gap, step, SAMPLES * A, ALIGNED)
    pattern = tl.zeros([BLOCK], tl.int32)
    for i in tl.static_range(SAMPLES):
        on = tl.load(x + i * A + n, mask=n < A, other=0.0) > 0
        pattern |= on.to(tl.int32) << i
    to = shown + tl.load(owners + m).to(tl.int64) * patterns + pattern
    tl.store(to, tl.full([BLOCK], 1, shown.dtype.element_ty), mask=n < A)


def mark(shown: Tensor, owners: Tensor, place: Source, slots: Tensor) -> None:
    """Writes 1 at the patterns [P, 2^B] of the owner of each of the maps in these slots."""
    _, samples, *size = place.arena.shape
    units = math.prod(size)
    gap, step, aligned = address(place)
    launch(
        _mark, (triton.cdiv(units, PLACES), len(slots)), shown, place.arena, owners, slots, gap, step, shown.shape[1],
        units, samples, aligned, PLACES, num_warps=4,
    )  # fmt: skip
