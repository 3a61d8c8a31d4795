"""GPU kernels for many networks at once: average pooling and sums of maps.

Maps follow one another, each [B, H, W, C] (`combine`, `pool`), or are joined along the channels, [B, M * C, H, W]
(`gather`, `box`). Sums are taken in a fixed order that does not depend on M, without atomics, so a network's numbers do
not depend on the others.
"""

# Triton knows neither stubs nor unpacking, and its compile-time arguments are capitals by custom.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu import triton_rows
from epochzero.engine.gpu.arena import Source, Terms, Window
from epochzero.engine.gpu.triton_arena import address, beginning, launch

BOX_BLOCK = 1024
GATHER_BLOCK = 1024
COMBINE_BLOCK = 1024
SOURCES = 8
"""the number of tensors that one launch of `gather` reads"""


@triton.jit(do_not_specialize=["gap", "step", "planes"])
def _box(
    out: tl.tensor,
    x: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    planes: tl.tensor,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    TABLE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
) -> None:
    """Means over windows of planes [H, W, C], one for each place of [HO, WO, C]; or the transpose.

    With TABLE, the slots say where the planes of each map begin.
    """
    start = tl.program_id(0).to(tl.int64) * BP
    here: tl.constexpr = H * W if TRANSPOSED else HO * WO
    there: tl.constexpr = HO * WO if TRANSPOSED else H * W
    wide: tl.constexpr = W if TRANSPOSED else WO
    if TABLE:
        m = tl.program_id(1)
        x += beginning(slots, m, gap, step, planes * (there * C), ALIGNED)
        out += m.to(tl.int64) * planes * (here * C)
    first = start // here
    n = (start - first * here).to(tl.int32) + tl.arange(0, BP)
    c = tl.arange(0, BC)
    row, column = n % here // wide, n % here % wide
    written = n < (planes - first) * here
    real = (c < C)[None, :]
    x += first * (there * C)
    at = n // here * there
    mean = tl.zeros([BP, BC], out.dtype.element_ty)
    for i in tl.static_range(K):
        line = tl.zeros([BP, BC], out.dtype.element_ty)
        if TRANSPOSED:
            u = row + PADDING - i
            y = u // STRIDE
            inner = written & (u >= 0) & (u % STRIDE == 0) & (y < HO)
        else:
            y = row * STRIDE - PADDING + i
            inner = written & (y >= 0) & (y < H)
        for j in tl.static_range(K):
            if TRANSPOSED:
                v = column + PADDING - j
                z = v // STRIDE
                inside = inner & (v >= 0) & (v % STRIDE == 0) & (z < WO)
                place = (at + y * WO + z)[:, None] * C + c[None, :]
                value = tl.load(x + place, mask=inside[:, None] & real, other=0.0)
                line += value / _covered(z, W, K, STRIDE, PADDING)[:, None]
            else:
                z = column * STRIDE - PADDING + j
                inside = inner & (z >= 0) & (z < W)
                place = (at + y * W + z)[:, None] * C + c[None, :]
                line += tl.load(x + place, mask=inside[:, None] & real, other=0.0)
        mean += line / _covered(y, H, K, STRIDE, PADDING)[:, None] if TRANSPOSED else line
    if not TRANSPOSED:
        mean /= (_covered(row, H, K, STRIDE, PADDING) * _covered(column, W, K, STRIDE, PADDING))[:, None]
    tl.store(out + first * (here * C) + n[:, None] * C + c[None, :], mean, mask=written[:, None] & real)


@triton.jit
def _covered(
    place: tl.tensor, SIZE: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr
) -> tl.tensor:
    """Counts the positions of an axis that the window at `place` covers; at least 1, as it is a divisor."""
    begin = place * STRIDE - PADDING
    count = tl.minimum(begin + K, SIZE) - tl.maximum(begin, 0)
    return tl.maximum(count, 1).to(tl.float32)


@triton.jit(do_not_specialize=["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "maps", "images"])
def _gather(
    out: tl.tensor,
    on: tl.tensor,
    indptr: tl.tensor,
    sources: tl.tensor,
    slots: tl.tensor,
    p0: tl.tensor,
    p1: tl.tensor,
    p2: tl.tensor,
    p3: tl.tensor,
    p4: tl.tensor,
    p5: tl.tensor,
    p6: tl.tensor,
    p7: tl.tensor,
    n0: tl.tensor,
    n1: tl.tensor,
    n2: tl.tensor,
    n3: tl.tensor,
    n4: tl.tensor,
    n5: tl.tensor,
    n6: tl.tensor,
    n7: tl.tensor,
    maps: tl.tensor,
    images: tl.tensor,
    inner: tl.tensor,
    WHOLE: tl.constexpr,
    ADD: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One output map, BLOCK of its places over the batch: the sum of its terms; with ADD, added to its old value.

    With MASKED, 0 where `on`, of the output's shape, is not positive.
    """
    m = tl.program_id(0) % maps
    start = (tl.program_id(0) // maps).to(tl.int64) * BLOCK
    first = start // inner
    e = (start - first * inner).to(tl.int32) + tl.arange(0, BLOCK)
    image = first if WHOLE else first + e // inner
    place = e if WHOLE else e % inner
    written = e < inner if WHOLE else image < images
    begin, end = tl.load(indptr + m), tl.load(indptr + m + 1)
    at = (image * maps + m) * inner + place
    to = out + at
    total = tl.zeros([BLOCK], out.dtype.element_ty)
    if ADD:
        total = tl.load(to, mask=written & (begin < end), other=0.0)
    for k in range(begin, end):
        s = tl.load(sources + k)
        slot = tl.load(slots + k)
        low = tl.where(s < 2, tl.where(s == 0, p0, p1), tl.where(s == 2, p2, p3))
        high = tl.where(s < 6, tl.where(s == 4, p4, p5), tl.where(s == 6, p6, p7))
        few = tl.where(s < 2, tl.where(s == 0, n0, n1), tl.where(s == 2, n2, n3))
        many = tl.where(s < 6, tl.where(s == 4, n4, n5), tl.where(s == 6, n6, n7))
        source = tl.where(s < 4, low, high).to(tl.pointer_type(out.dtype.element_ty))
        source = tl.multiple_of(source, 16)
        total += tl.load(source + (image * tl.where(s < 4, few, many) + slot) * inner + place, mask=written, other=0.0)
    if MASKED:
        total = tl.where(tl.load(on + at, mask=written, other=0.0) > 0, total, 0.0)
    tl.store(to, total, mask=written if not ADD else written & (begin < end))


@triton.jit(do_not_specialize=["gap", "step"])
def _combine(
    out: tl.tensor,
    x: tl.tensor,
    starts: tl.tensor,
    slots: tl.tensor,
    rows: tl.tensor,
    coefficients: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    size: tl.tensor,
    C: tl.constexpr,
    SCALED: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One output map, BLOCK of its numbers: the sum of its terms; those with a row are scaled and shifted first."""
    m = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = at % C
    written = at < size
    total = tl.zeros([BLOCK], out.dtype.element_ty)
    for k in range(tl.load(starts + m), tl.load(starts + m + 1)):
        term = tl.load(x + beginning(slots, k, gap, step, size, ALIGNED) + at, mask=written, other=0.0)
        if SCALED:
            row = tl.load(rows + k).to(tl.int64)
            if row >= 0:
                to = coefficients + row * (2 * C) + channel
                term = term * tl.load(to) + tl.load(to + C)
        total += term
    begin = m.to(tl.int64) * size
    tl.store(out + (tl.multiple_of(begin, ALIGNED) if ALIGNED else begin) + at, total, mask=written)


def combine(out: Tensor, place: Source, terms: Terms, coefficients: Tensor | None) -> None:
    """See `epochzero.engine.gpu.arena`."""
    maps, size = len(out), out[0].numel()
    gap, step, aligned = address(place)
    launch(
        _combine, (triton.cdiv(size, COMBINE_BLOCK), maps), out, place.arena, terms.starts, terms.slots, terms.rows,
        out if coefficients is None else coefficients, gap, step, size, out.shape[-1], coefficients is not None,
        aligned, COMBINE_BLOCK, num_warps=4,
    )  # fmt: skip


def pool(out: Tensor, place: Source, slots: Tensor, window: Window, transposed: bool) -> None:
    """See `epochzero.engine.gpu.arena`."""
    if triton_rows.smooths(out, window):
        triton_rows.smooth(out, place, slots, transposed)
        return
    maps, images, *size, channels = out.shape
    kernel, stride, padding, _ = window
    inner = list(place.arena.shape[2:4])
    large, small = (size, inner) if transposed else (inner, size)
    wide = triton.next_power_of_2(channels)
    tile = max(1, BOX_BLOCK // wide)
    grid = (triton.cdiv(images * size[0] * size[1], tile), maps)
    gap, step, aligned = address(place)
    launch(
        _box, grid, out, place.arena, slots, gap, step, images, channels, *large, *small, kernel, stride, padding,
        transposed, True, aligned, tile, wide, num_warps=4,
    )  # fmt: skip


def box(
    x: Tensor,
    large: tuple[int, int],
    small: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    transposed: bool,
) -> Tensor:
    """Means over windows, padding not counted, from maps of size `large` to `small`; or the transpose."""
    x = x.contiguous()
    out = torch.empty((*x.shape[:2], *(large if transposed else small)), dtype=x.dtype, device=x.device)
    planes = x.shape[0] * x.shape[1]
    grid = (triton.cdiv(out.numel(), BOX_BLOCK),)
    launch(
        _box, grid, out, x, x, 0, 0, planes, 1, *large, *small, kernel, stride, padding, transposed, False, 0,
        BOX_BLOCK, 1, num_warps=4,
    )  # fmt: skip
    return out


def gather(
    out: Tensor,
    sources: list[Tensor],
    sizes: tuple[int, ...],
    terms: tuple[Tensor, Tensor, Tensor],
    add: bool,
    on: Tensor | None = None,
) -> None:
    """Writes into (or adds to) every map of `out` the sum of its terms: maps of at most eight sources.

    What is written is 0 where `on`, if it is given, is not positive.

    `sizes` counts the maps of each source; `terms` are the first term of each output map (and the end), and each
    term's source and map in it.
    """
    images, maps = len(out), len(terms[0]) - 1
    inner = out.numel() // (images * maps)
    aligned = [source.clone() if source.data_ptr() % 16 else source for source in sources]
    pointers = [source.data_ptr() for source in aligned]
    pointers += pointers[:1] * (SOURCES - len(pointers))
    counts = sizes + sizes[:1] * (SOURCES - len(sizes))
    grid = (maps * -(-images * inner // GATHER_BLOCK),)
    launch(
        _gather, grid, out, out if on is None else on, *terms, *pointers, *counts, maps, images, inner,
        inner % GATHER_BLOCK == 0, add, on is not None, GATHER_BLOCK, num_warps=4,
    )  # fmt: skip
