"""GPU kernels for many networks side by side: grouped convolution, average pooling and gathering sums.

Every tensor is float32 and contiguous, [B, M * C, H, W]: M maps of C channels, one map for each network. Sums are taken
in a fixed order that does not depend on M, without atomics, so a network's numbers do not depend on its company.
"""

# Triton knows neither stubs nor unpacking, and its compile-time arguments are capitals by custom.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803, RUF005

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PRECISION = "tf32x3"
"""How a matrix product rounds: "tf32x3" (three tensor core products, close to float32), "ieee" or "tf32"."""

BOX_BLOCK = 1024
GATHER_BLOCK = 1024
SOURCES = 8
"""How many tensors one launch of `gather` reads."""

# By the wider of a map's input and output channels: blocks of input channels, output channels and pixels, whether
# pixels are the rows of the product, warps and stages.
CONVOLVE = {
    16: (16, 16, 128, False, 2, 3),
    32: (16, 32, 64, False, 2, 3),
    64: (16, 64, 128, True, 4, 3),
}
# The same of the weight gradient: block of pixels, rows of the window at once, warps, stages, shares of the pixels.
CORRELATE = {
    16: (16, 1, 1, 3, 16),
    32: (16, 1, 2, 3, 8),
    64: (16, 1, 4, 3, 4),
}


@triton.jit(do_not_specialize=["maps"])
def _convolve(
    out: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    maps: tl.tensor,
    pixels: tl.tensor,
    CI: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    CO: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    FLIP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One map, BO of its output channels, BP output pixels: a product over input channels for each tap."""
    start, m = tl.program_id(0) * BP, tl.program_id(1)
    n = start + tl.arange(0, BP)
    first = start // (HO * WO)
    image = n // (HO * WO) - first
    place = n % (HO * WO)
    row = place // WO
    column = place % WO
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    x += (first.to(tl.int64) * maps + m) * (CI * H * W)
    out += (first.to(tl.int64) * maps + m) * (CO * HO * WO)
    weight += m.to(tl.int64) * (K * K * CO * CI)
    blocks: tl.constexpr = (CI + BI - 1) // BI
    total = tl.zeros([BP, BO] if FLIP else [BO, BP], tl.float32)
    for step in range(K * K * blocks):
        tap = step // blocks
        c = step % blocks * BI + tl.arange(0, BI)
        if K == 1 and STRIDE == 1 and PADDING == 0:
            inside = n < pixels
            at = image * (maps * CI * H * W) + place
        elif TRANSPOSED:
            y = row + PADDING - tap // K * DILATION
            z = column + PADDING - tap % K * DILATION
            inside = (n < pixels) & (y >= 0) & (y < H * STRIDE) & (z >= 0) & (z < W * STRIDE)
            if STRIDE > 1:
                inside &= (y % STRIDE == 0) & (z % STRIDE == 0)
                y //= STRIDE
                z //= STRIDE
            at = image * (maps * CI * H * W) + y * W + z
        else:
            y = row * STRIDE - PADDING + tap // K * DILATION
            z = column * STRIDE - PADDING + tap % K * DILATION
            inside = (n < pixels) & (y >= 0) & (y < H) & (z >= 0) & (z < W)
            at = image * (maps * CI * H * W) + y * W + z
        known = inside[None, :] if CI % BI == 0 else inside[None, :] & (c < CI)[:, None]
        piece = tl.load(x + (c * (H * W))[:, None] + at[None, :], mask=known, other=0.0)
        factor = weight + tap * (CO * CI) + o[:, None] * CI + c[None, :]
        if CI % BI == 0 and CO % BO == 0:
            factors = tl.load(factor)
        else:
            factors = tl.load(factor, mask=(o < CO)[:, None] & (c < CI)[None, :], other=0.0)
        if FLIP:
            total = tl.dot(tl.trans(piece), tl.trans(factors), total, input_precision=PRECISION)
        else:
            total = tl.dot(factors, piece, total, input_precision=PRECISION)
    if FLIP:
        total = tl.trans(total)
    to = out + (o * (HO * WO))[:, None] + (image * (maps * CO * HO * WO) + place)[None, :]
    tl.store(to, total, mask=(o < CO)[:, None] & (n < pixels)[None, :])


@triton.jit(do_not_specialize=["maps"])
def _correlate(
    partial: tl.tensor,
    x: tl.tensor,
    gradient: tl.tensor,
    maps: tl.tensor,
    pixels: tl.tensor,
    share: tl.tensor,
    CI: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    CO: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    ROWS: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One map, ROWS rows of the window, one share of the output pixels: a product over pixels for each tap."""
    m, split = tl.program_id(1), tl.program_id(2)
    bands: tl.constexpr = K // ROWS
    band = tl.program_id(0) % bands
    block = tl.program_id(0) // bands
    across: tl.constexpr = (CI + BI - 1) // BI
    c = block % across * BI + tl.arange(0, BI)
    o = block // across * BO + tl.arange(0, BO)
    totals = ()
    for _ in tl.static_range(ROWS * K):
        totals = totals + (tl.zeros([BO, BI], tl.float32),)
    for start in range(split * share, min((split + 1) * share, pixels), BP):
        n = start + tl.arange(0, BP)
        first = start // (HO * WO)
        image = n // (HO * WO) - first
        place = n % (HO * WO)
        row = place // WO * STRIDE - PADDING
        column = place % WO * STRIDE - PADDING
        base = first.to(tl.int64) * maps + m
        to = gradient + base * (CO * HO * WO) + (o * (HO * WO))[:, None]
        known = (n < pixels)[None, :] if CO % BO == 0 else (n < pixels)[None, :] & (o < CO)[:, None]
        g = tl.load(to + (image * (maps * CO * HO * WO) + place)[None, :], mask=known, other=0.0)
        added = ()
        for tap in tl.static_range(ROWS * K):
            if K == 1 and STRIDE == 1 and PADDING == 0:
                inside = n < pixels
                at = image * (maps * CI * H * W) + place
            else:
                y = row + (band * ROWS + tap // K) * DILATION
                z = column + tap % K * DILATION
                inside = (n < pixels) & (y >= 0) & (y < H) & (z >= 0) & (z < W)
                at = image * (maps * CI * H * W) + y * W + z
            known = inside[None, :] if CI % BI == 0 else inside[None, :] & (c < CI)[:, None]
            source = x + base * (CI * H * W) + (c * (H * W))[:, None] + at[None, :]
            piece = tl.load(source, mask=known, other=0.0)
            added = added + (tl.dot(g, tl.trans(piece), totals[tap], input_precision=PRECISION),)
        totals = added
    base = (split * maps + m).to(tl.int64) * (CO * CI * K * K)
    to = partial + base + o[:, None] * (CI * K * K) + c[None, :] * (K * K) + band * (ROWS * K)
    for tap in tl.static_range(ROWS * K):
        tl.store(to + tap, totals[tap], mask=(o < CO)[:, None] & (c < CI)[None, :])


@triton.jit
def _box(
    out: tl.tensor,
    x: tl.tensor,
    total: tl.tensor,
    H: tl.constexpr,
    W: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Means over windows of the large map [H, W], one for each place of the small one [HO, WO]; or the transpose."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    here: tl.constexpr = H * W if TRANSPOSED else HO * WO
    there: tl.constexpr = HO * WO if TRANSPOSED else H * W
    wide: tl.constexpr = W if TRANSPOSED else WO
    first = start // here
    n = (start - first * here).to(tl.int32) + tl.arange(0, BLOCK)
    row = n % here // wide
    column = n % here % wide
    written = n < total - first * here
    x += first * there
    at = n // here * there
    mean = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(K):
        line = tl.zeros([BLOCK], tl.float32)
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
                share = 1.0 / _covered(z, W, K, STRIDE, PADDING)
                line += share * tl.load(x + at + y * WO + z, mask=inside, other=0.0)
            else:
                z = column * STRIDE - PADDING + j
                line += tl.load(x + at + y * W + z, mask=inner & (z >= 0) & (z < W), other=0.0)
        mean += line / _covered(y, H, K, STRIDE, PADDING) if TRANSPOSED else line
    if not TRANSPOSED:
        mean /= _covered(row, H, K, STRIDE, PADDING) * _covered(column, W, K, STRIDE, PADDING)
    tl.store(out + first * here + n, mean, mask=written)


@triton.jit
def _covered(
    place: tl.tensor, SIZE: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr
) -> tl.tensor:
    """How many places of an axis the window at `place` covers; at least 1, so that what is masked divides by no 0."""
    begin = place * STRIDE - PADDING
    count = tl.minimum(begin + K, SIZE) - tl.maximum(begin, 0)
    return tl.maximum(count, 1).to(tl.float32)


@triton.jit(do_not_specialize=["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "maps", "images"])
def _gather(
    out: tl.tensor,
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
    INNER: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One output map, BLOCK of its places over the batch: the sum of its terms; with ADD, on top of what is there."""
    m = tl.program_id(0) % maps
    start = (tl.program_id(0) // maps).to(tl.int64) * BLOCK
    first = start // INNER
    e = (start - first * INNER).to(tl.int32) + tl.arange(0, BLOCK)
    image = first + e // INNER
    place = e % INNER
    written = image < images
    begin, end = tl.load(indptr + m), tl.load(indptr + m + 1)
    to = out + (image * maps + m) * INNER + place
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
        total += tl.load(source + (image * tl.where(s < 4, few, many) + slot) * INNER + place, mask=written, other=0.0)
    tl.store(to, total, mask=written if not ADD else written & (begin < end))


def _block(channels: int) -> int:
    return 16 if channels <= 16 else 32 if channels <= 32 else 64


def convolve(
    x: Tensor,
    weight: Tensor,
    size: tuple[int, int],
    maps: int,
    stride: int,
    padding: int,
    dilation: int,
    transposed: bool,
) -> Tensor:
    """The convolution of every map of `x` with its weights [M * Co, Ci, k, k] to `size`, or its transpose."""
    x = x.contiguous()  # [B, M * Ci, H, W]
    images, channels, height, width = x.shape
    kernel = weight.shape[3]
    each = weight.reshape(maps, -1, weight.shape[1], kernel * kernel)  # [M, Co, Ci, k * k]
    taps = each.permute((0, 3, 2, 1) if transposed else (0, 3, 1, 2)).contiguous()  # [M, k * k, out, in]
    inputs, outputs = channels // maps, taps.shape[2]
    out = torch.empty((images, maps * outputs, *size), dtype=x.dtype, device=x.device)
    pixels = images * size[0] * size[1]
    wide_in, wide_out = _block(inputs), _block(outputs)
    most_in, most_out, tile, flip, warps, stages = CONVOLVE[max(wide_in, wide_out)]
    wide_in, wide_out = min(wide_in, most_in), min(wide_out, most_out)
    grid = (-(-pixels // tile), maps, -(-outputs // wide_out))
    _convolve[grid](
        out, x, taps, maps, pixels, inputs, height, width, outputs, *size, kernel, stride, padding, dilation,
        transposed, wide_in, wide_out, tile, flip, PRECISION, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def correlate(
    x: Tensor, gradient: Tensor, shape: torch.Size, maps: int, stride: int, padding: int, dilation: int
) -> Tensor:
    """The gradient of the weights [M * Co, Ci, k, k] of the convolution of `x`, from the gradient of its output."""
    x, gradient = x.contiguous(), gradient.contiguous()  # [B, M * Ci, H, W], [B, M * Co, Ho, Wo]
    images, _, height, width = x.shape
    outputs, inputs, kernel = shape[0] // maps, shape[1], shape[3]
    pixels = images * gradient.shape[2] * gradient.shape[3]
    wide_in, wide_out = _block(inputs), _block(outputs)
    tile, rows, warps, stages, splits = CORRELATE[max(wide_in, wide_out)]
    rows = rows if kernel % rows == 0 else 1
    share = -(-pixels // (splits * tile)) * tile
    splits = -(-pixels // share)
    partial = torch.empty((splits, *shape), dtype=x.dtype, device=x.device)
    grid = (kernel // rows * -(-inputs // wide_in) * -(-outputs // wide_out), maps, splits)
    _correlate[grid](
        partial, x, gradient, maps, pixels, share, inputs, height, width, outputs, gradient.shape[2], gradient.shape[3],
        kernel, stride, padding, dilation, rows, wide_in, wide_out, tile, PRECISION, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return partial.sum(0) if splits > 1 else partial[0]


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
    total = out.numel()
    grid = (-(-total // BOX_BLOCK),)
    _box[grid](out, x, total, *large, *small, kernel, stride, padding, transposed, BOX_BLOCK, num_warps=4)
    return out


def gather(
    out: Tensor, sources: list[Tensor], sizes: tuple[int, ...], terms: tuple[Tensor, Tensor, Tensor], add: bool
) -> None:
    """Writes into (or adds to) every map of `out` the sum of its terms: maps of at most eight sources.

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
    _gather[grid](out, *terms, *pointers, *counts, maps, images, inner, add, GATHER_BLOCK, num_warps=4)
