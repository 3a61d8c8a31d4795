"""GPU kernels for many networks side by side: grouped convolution and its two gradients.

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
"""How a matrix product rounds: "tf32x3" (three tensor core products, close to float32), "ieee" or "tf32"; "tf32" for
"tf32x3" where torch's own convolutions may round that way."""

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
    on: tl.tensor,
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
    MASKED: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    FLIP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One map, BO of its output channels, BP output pixels: a product over input channels for each tap.

    With MASKED, 0 where `on`, of the output's shape, is not positive.
    """
    start, m = tl.program_id(0) * BP, tl.program_id(1)
    n = start + tl.arange(0, BP)
    first = start // (HO * WO)
    image, place = n // (HO * WO) - first, n % (HO * WO)
    row, column = place // WO, place % WO
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    x += (first.to(tl.int64) * maps + m) * (CI * H * W)
    base = (first.to(tl.int64) * maps + m) * (CO * HO * WO)
    out += base
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
    at = (o * (HO * WO))[:, None] + (image * (maps * CO * HO * WO) + place)[None, :]
    written = (o < CO)[:, None] & (n < pixels)[None, :]
    if MASKED:
        total = tl.where(tl.load(on + base + at, mask=written, other=0.0) > 0, total, 0.0)
    tl.store(out + at, total, mask=written)


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


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 and PRECISION == "tf32x3" else PRECISION


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
    on: Tensor | None = None,
) -> Tensor:
    """The convolution of every map of `x` with its weights [M * Co, Ci, k, k] to `size`, or its transpose.

    0 where `on`, if it is given, is not positive.
    """
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
        out, x, taps, x if on is None else on.contiguous(), maps, pixels, inputs, height, width, outputs, *size, kernel,
        stride, padding, dilation, transposed, on is not None, wide_in, wide_out, tile, flip, _precision(),
        num_warps=warps, num_stages=stages,
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
        kernel, stride, padding, dilation, rows, wide_in, wide_out, tile, _precision(), num_warps=warps,
        num_stages=stages,
    )  # fmt: skip
    return partial.sum(0) if splits > 1 else partial[0]
