"""GPU kernels for many networks at once: batch norm on the batch's own statistics, and its gradient.

Sums over a channel are taken tile by tile and then over the tiles in a fixed order, around the mean, so that nothing
cancels; no network's numbers depend on the others.
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu.arena import Moments, Source, SourcePair, TensorPair
from epochzero.engine.gpu.triton_arena import address, beginning, launch

PIXELS = 256
"""pixels of one tile"""
TILES = 32
"""tiles added up at a time"""


@triton.jit(do_not_specialize=["gap", "step"])
def _moments(
    moments: tl.tensor,
    x: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    pixels: tl.tensor,
    C: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """The mean of each channel of a tile, and its sum of squares around that."""
    tile, m = tl.program_id(0), tl.program_id(1)
    n, c = tile * BP + tl.arange(0, BP), tl.arange(0, BC)
    there = (n < pixels)[:, None] & (c < C)[None, :]
    x += beginning(slots, m, gap, step, pixels * C, ALIGNED)
    values = tl.load(x + n[:, None] * C + c[None, :], mask=there, other=0.0)
    mean = tl.sum(values, 0) / tl.minimum(pixels - tile * BP, BP)
    away = tl.where(there, values - mean[None, :], 0.0)
    to = moments + (m * tl.num_programs(0) + tile).to(tl.int64) * (2 * C) + c
    tl.store(to, mean, mask=c < C)
    tl.store(to + C, tl.sum(away * away, 0), mask=c < C)


@triton.jit(do_not_specialize=["tiles"])
def _settle(
    coefficients: tl.tensor,
    statistics: tl.tensor,
    moments: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    which: tl.tensor,
    eps: tl.tensor,
    pixels: tl.tensor,
    tiles: tl.tensor,
    tile: tl.tensor,
    C: tl.constexpr,
    AFFINE: tl.constexpr,
    BC: tl.constexpr,
    BT: tl.constexpr,
) -> None:
    """Mean and 1 / deviation of each channel of a map, and the scale and shift that they come to."""
    m = tl.program_id(0)
    c = tl.arange(0, BC)
    real = c < C
    moments += m.to(tl.int64) * tiles * (2 * C)
    total = tl.zeros([BT, BC], statistics.dtype.element_ty)
    for start in range(0, tiles, BT):
        t = start + tl.arange(0, BT)
        count = tl.maximum(tl.minimum(pixels - t * tile, tile), 0)
        there = (t < tiles)[:, None] & real[None, :]
        total += tl.load(moments + t[:, None] * (2 * C) + c[None, :], mask=there, other=0.0) * count[:, None]
    mean = tl.sum(total, 0) / pixels
    total = tl.zeros([BT, BC], statistics.dtype.element_ty)
    for start in range(0, tiles, BT):
        t = start + tl.arange(0, BT)
        count = tl.maximum(tl.minimum(pixels - t * tile, tile), 0)
        there = (t < tiles)[:, None] & real[None, :]
        to = moments + t[:, None] * (2 * C) + c[None, :]
        away = tl.where(there, tl.load(to, mask=there, other=0.0) - mean[None, :], 0.0)
        total += tl.load(to + C, mask=there, other=0.0) + away * away * count[:, None]
    rstd = 1 / tl.sqrt(tl.sum(total, 0) / pixels + eps)
    to = m.to(tl.int64) * (2 * C) + c
    tl.store(statistics + to, mean, mask=real)
    tl.store(statistics + to + C, rstd, mask=real)
    scale, shift = rstd, tl.zeros([BC], rstd.dtype)
    if AFFINE:
        own = tl.load(which + m) * C + c
        scale *= tl.load(weight + own, mask=real, other=0.0)
        shift = tl.load(bias + own, mask=real, other=0.0)
    shift -= mean * scale
    tl.store(coefficients + to, scale, mask=real)
    tl.store(coefficients + to + C, shift, mask=real)


@triton.jit(do_not_specialize=["gap", "step"])
def _reduce(
    sums: tl.tensor,
    x: tl.tensor,
    gradient: tl.tensor,
    statistics: tl.tensor,
    slots: tl.tensor,
    own: tl.tensor,
    rows: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    pixels: tl.tensor,
    C: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """Of one tile, the sums of g and of g xh for each channel."""
    tile, m = tl.program_id(0), tl.program_id(1)
    n, c = tile * BP + tl.arange(0, BP), tl.arange(0, BC)
    there = (n < pixels)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    g = tl.load(gradient + beginning(slots, m, gap, step, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    values = tl.load(x + beginning(own, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    to = statistics + tl.load(rows + m).to(tl.int64) * (2 * C) + c
    mean, rstd = tl.load(to, mask=c < C, other=0.0), tl.load(to + C, mask=c < C, other=0.0)
    to = sums + (m * tl.num_programs(0) + tile).to(tl.int64) * (2 * C) + c
    tl.store(to, tl.sum(g, 0), mask=c < C)
    tl.store(to + C, tl.sum(g * ((values - mean[None, :]) * rstd[None, :]), 0), mask=c < C)


@triton.jit(do_not_specialize=["tiles"])
def _total(
    totals: tl.tensor, sums: tl.tensor, tiles: tl.tensor, N: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr
) -> None:
    """The sums over all tiles of a map."""
    m = tl.program_id(0)
    n = tl.arange(0, BN)
    sums += m.to(tl.int64) * tiles * N
    total = tl.zeros([BT, BN], totals.dtype.element_ty)
    for start in range(0, tiles, BT):
        t = start + tl.arange(0, BT)
        there = (t < tiles)[:, None] & (n < N)[None, :]
        total += tl.load(sums + t[:, None] * N + n[None, :], mask=there, other=0.0)
    tl.store(totals + m.to(tl.int64) * N + n, tl.sum(total, 0), mask=n < N)


@triton.jit(do_not_specialize=["gap", "step"])
def _apply(
    out: tl.tensor,
    x: tl.tensor,
    gradient: tl.tensor,
    statistics: tl.tensor,
    totals: tl.tensor,
    weight: tl.tensor,
    slots: tl.tensor,
    own: tl.tensor,
    rows: tl.tensor,
    which: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    pixels: tl.tensor,
    C: tl.constexpr,
    AFFINE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """One tile of w r (g - mean(g) - xh mean(g xh))."""
    tile, m = tl.program_id(0), tl.program_id(1)
    n, c = tile * BP + tl.arange(0, BP), tl.arange(0, BC)
    real = c < C
    there = (n < pixels)[:, None] & real[None, :]
    at = n[:, None] * C + c[None, :]
    g = tl.load(gradient + beginning(slots, m, gap, step, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    values = tl.load(x + beginning(own, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    to = statistics + tl.load(rows + m).to(tl.int64) * (2 * C) + c
    mean, rstd = tl.load(to, mask=real, other=0.0), tl.load(to + C, mask=real, other=0.0)
    to = totals + m.to(tl.int64) * (2 * C) + c
    low, along = tl.load(to, mask=real, other=0.0), tl.load(to + C, mask=real, other=0.0)
    slope = rstd
    if AFFINE:
        slope *= tl.load(weight + tl.load(which + m) * C + c, mask=real, other=0.0)
    bend = rstd * (along / pixels)
    centred = g - (low / pixels)[None, :] - (values - mean[None, :]) * bend[None, :]
    tl.store(out + m.to(tl.int64) * pixels * C + at, centred * slope[None, :], mask=there)


def _sizes(maps: Tensor) -> tuple[int, int, int, int]:
    """Returns the numbers of pixels and channels of a map, and the blocks of both."""
    _, *size, channels = maps.shape
    wide = max(16, triton.next_power_of_2(channels))
    return math.prod(size), channels, max(1, PIXELS * 16 // wide), wide


def moments(place: Source, slots: Tensor) -> Moments:
    """See `epochzero.engine.gpu.arena`."""
    count, (pixels, channels, tile, wide) = len(slots), _sizes(place.arena)
    tiles = triton.cdiv(pixels, tile)
    gap, step, aligned = address(place)
    parts = place.arena.new_empty((count, tiles, 2, channels))
    launch(
        _moments, (tiles, count), parts, place.arena, slots, gap, step, pixels, channels, aligned, wide, tile,
        num_warps=4,
    )  # fmt: skip
    return Moments(parts, tile)


def settle(
    coefficients: Tensor,
    statistics: Tensor,
    moments: Moments,
    pixels: int,
    weight: Tensor | None,
    bias: Tensor | None,
    which: Tensor,
    eps: float,
) -> None:
    """See `epochzero.engine.gpu.arena`."""
    parts, tile = moments
    maps, tiles, _, channels = parts.shape
    launch(
        _settle, (maps,), coefficients, statistics, parts, parts if weight is None else weight,
        parts if bias is None else bias, which, eps, pixels, tiles, tile, channels, weight is not None,
        max(16, triton.next_power_of_2(channels)), TILES, num_warps=4,
    )  # fmt: skip


def norm_back(
    out: Tensor,
    arena: Tensor,
    own: Tensor,
    place: Source,
    slots: Tensor,
    statistics: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    which: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `epochzero.engine.gpu.arena`."""
    count, (pixels, channels, tile, wide) = len(out), _sizes(out)
    tiles = triton.cdiv(pixels, tile)
    gap, step, aligned = address(place)
    sums, totals = out.new_empty((count, tiles, 2, channels)), out.new_empty((count, 2, channels))
    launch(
        _reduce, (tiles, count), sums, arena, place.arena, statistics, slots, own, rows, gap, step, pixels, channels,
        aligned, wide, tile, num_warps=4,
    )  # fmt: skip
    launch(_total, (count,), totals, sums, tiles, 2 * channels, 2 * wide, TILES, num_warps=4)
    launch(
        _apply, (tiles, count), out, arena, place.arena, statistics, totals, out if weight is None else weight, slots,
        own, rows, which, gap, step, pixels, channels, weight is not None, aligned, wide, tile, num_warps=4,
    )  # fmt: skip
    return totals[:, 1], totals[:, 0]


@triton.jit(do_not_specialize=["gap", "step", "gap_along", "step_along"])
def _reduce_along(
    sums: tl.tensor,
    x: tl.tensor,
    velocity: tl.tensor,
    gradient: tl.tensor,
    gradient_along: tl.tensor,
    statistics: tl.tensor,
    slots: tl.tensor,
    own: tl.tensor,
    rows: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    gap_along: tl.int64,
    step_along: tl.int64,
    pixels: tl.tensor,
    C: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """Of one tile, the sums of g, g xh, u, u xh, u g, g' and g' xh for each channel."""
    tile, m = tl.program_id(0), tl.program_id(1)
    n, c = tile * BP + tl.arange(0, BP), tl.arange(0, BC)
    there = (n < pixels)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    g = tl.load(gradient + beginning(slots, m, gap, step, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    other = gradient_along + beginning(slots, m, gap_along, step_along, pixels * C, ALIGNED)
    g_along = tl.load(other + at, mask=there, other=0.0)
    values = tl.load(x + beginning(own, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    u = tl.load(velocity + beginning(rows, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    to = statistics + tl.load(rows + m).to(tl.int64) * (2 * C) + c
    mean, rstd = tl.load(to, mask=c < C, other=0.0), tl.load(to + C, mask=c < C, other=0.0)
    xh = (values - mean[None, :]) * rstd[None, :]
    to = sums + (m * tl.num_programs(0) + tile).to(tl.int64) * (7 * C) + c
    tl.store(to, tl.sum(g, 0), mask=c < C)
    tl.store(to + C, tl.sum(g * xh, 0), mask=c < C)
    tl.store(to + 2 * C, tl.sum(u, 0), mask=c < C)
    tl.store(to + 3 * C, tl.sum(u * xh, 0), mask=c < C)
    tl.store(to + 4 * C, tl.sum(u * g, 0), mask=c < C)
    tl.store(to + 5 * C, tl.sum(g_along, 0), mask=c < C)
    tl.store(to + 6 * C, tl.sum(g_along * xh, 0), mask=c < C)


@triton.jit(do_not_specialize=["gap", "step", "gap_along", "step_along"])
def _apply_along(
    out: tl.tensor,
    out_along: tl.tensor,
    x: tl.tensor,
    velocity: tl.tensor,
    gradient: tl.tensor,
    gradient_along: tl.tensor,
    statistics: tl.tensor,
    totals: tl.tensor,
    weight: tl.tensor,
    slots: tl.tensor,
    own: tl.tensor,
    rows: tl.tensor,
    which: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    gap_along: tl.int64,
    step_along: tl.int64,
    pixels: tl.tensor,
    C: tl.constexpr,
    AFFINE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """One tile of the gradient, and of its velocity (`epochzero.engine.gpu.arena.norm_back_jvp`)."""
    tile, m = tl.program_id(0), tl.program_id(1)
    n, c = tile * BP + tl.arange(0, BP), tl.arange(0, BC)
    real = c < C
    there = (n < pixels)[:, None] & real[None, :]
    at = n[:, None] * C + c[None, :]
    g = tl.load(gradient + beginning(slots, m, gap, step, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    other = gradient_along + beginning(slots, m, gap_along, step_along, pixels * C, ALIGNED)
    g_along = tl.load(other + at, mask=there, other=0.0)
    values = tl.load(x + beginning(own, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    u = tl.load(velocity + beginning(rows, m, 0, 0, pixels * C, ALIGNED) + at, mask=there, other=0.0)
    to = statistics + tl.load(rows + m).to(tl.int64) * (2 * C) + c
    mean, rstd = tl.load(to, mask=real, other=0.0), tl.load(to + C, mask=real, other=0.0)
    to = totals + m.to(tl.int64) * (7 * C) + c
    low_g, along_g = tl.load(to, mask=real, other=0.0) / pixels, tl.load(to + C, mask=real, other=0.0) / pixels
    low_u, along_u = (
        tl.load(to + 2 * C, mask=real, other=0.0) / pixels,
        tl.load(to + 3 * C, mask=real, other=0.0) / pixels,
    )
    both = tl.load(to + 4 * C, mask=real, other=0.0) / pixels
    low, along = tl.load(to + 5 * C, mask=real, other=0.0) / pixels, tl.load(to + 6 * C, mask=real, other=0.0) / pixels
    slope = rstd
    if AFFINE:
        slope *= tl.load(weight + tl.load(which + m) * C + c, mask=real, other=0.0)
    xh = (values - mean[None, :]) * rstd[None, :]
    begin = m.to(tl.int64) * pixels * C
    g -= low_g[None, :]
    tl.store(out + begin + at, (g - xh * along_g[None, :]) * slope[None, :], mask=there)
    bend = both - low_u * low_g - 3 * along_u * along_g
    bent = (u - low_u[None, :]) * along_g[None, :] + g * along_u[None, :] + xh * bend[None, :]
    moved = g_along - low[None, :] - xh * along[None, :] - bent * rstd[None, :]
    tl.store(out_along + begin + at, moved * slope[None, :], mask=there)


def norm_back_jvp(
    out: TensorPair,
    arena: Tensor,
    own: Tensor,
    velocities: Tensor,
    pair: SourcePair,
    slots: Tensor,
    statistics: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    which: Tensor,
) -> None:
    """See `epochzero.engine.gpu.arena`."""
    count, (pixels, channels, tile, wide) = len(out[0]), _sizes(out[0])
    tiles = triton.cdiv(pixels, tile)
    (gap, step, aligned), (gap_along, step_along, also) = (address(place) for place in pair)
    sums, totals = arena.new_empty((count, tiles, 7, channels)), arena.new_empty((count, 7, channels))
    maps = arena, velocities, pair[0].arena, pair[1].arena, statistics
    gaps = gap, step, gap_along, step_along, pixels, channels
    launch(
        _reduce_along, (tiles, count), sums, *maps, slots, own, rows, *gaps, min(aligned, also), wide, tile,
        num_warps=4,
    )  # fmt: skip
    launch(_total, (count,), totals, sums, tiles, 7 * channels, 8 * wide, TILES, num_warps=4)
    launch(
        _apply_along, (tiles, count), *out, *maps, totals, out[0] if weight is None else weight, slots, own, rows,
        which, *gaps, weight is not None, min(aligned, also), wide, tile, num_warps=4,
    )  # fmt: skip
