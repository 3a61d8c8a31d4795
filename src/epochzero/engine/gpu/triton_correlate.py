"""GPU kernels for many networks at once: the gradients of convolutions' weights (see `triton_conv`)."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment, var-annotated"
# ruff: noqa: N803, PLR0915, RUF005

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu import triton_rows
from epochzero.engine.gpu.arena import Source, SourcePair, TensorPair, Window
from epochzero.engine.gpu.triton_arena import beginning, launch
from epochzero.engine.gpu.triton_windows import Read, Sizes, block, forward, high, precision, size, some, tap_of

# By the window and the wider of a map's input and output channels: block of pixels, rows of the window at once, warps,
# stages, numbers read at a time, shares of the pixels. Measured on an H200 with 64 maps of 64 images; there are more
# shares than are best there, for populations that are smaller.
CORRELATE = {
    (3, 16): (16, 3, 1, 3, 4, 32),
    (3, 32): (16, 1, 1, 3, 4, 16),
    (3, 64): (32, 1, 4, 3, 4, 8),
    (1, 16): (64, 1, 1, 3, 4, 8),
    (1, 32): (32, 1, 1, 3, 4, 8),
    (1, 64): (32, 1, 4, 3, 4, 4),
}


@triton.jit(do_not_specialize=["gap", "step", "gap_along", "step_along", "maps", "images"])
def _correlate(
    partial: tl.tensor,
    x: tl.tensor,
    gradient: tl.tensor,
    x_along: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    gap_along: tl.int64,
    step_along: tl.int64,
    share: tl.tensor,
    maps: tl.tensor,
    images: tl.tensor,
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
    RELU: tl.constexpr,
    ALONG: tl.constexpr,
    LAST: tl.constexpr,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One map, ROWS rows of the window, one share of the output pixels: a product over pixels for each tap.

    RELU: of max(x, 0). ALONG: of the velocities of `x`, with RELU those where it is positive.
    """
    m, split = tl.program_id(1), tl.program_id(2)
    bands: tl.constexpr = K // ROWS
    band = tl.program_id(0) % bands
    part = tl.program_id(0) // bands
    across: tl.constexpr = (CI + BI - 1) // BI
    c = part % across * BI + tl.arange(0, BI)
    o = part // across * BO + tl.arange(0, BO)
    pixels = images * (HO * WO)
    from_x = m.to(tl.int64) * (CI * H * W)
    from_out = m.to(tl.int64) * (CO * HO * WO)
    between_x = CI * H * W
    between_out = CO * HO * WO
    if LAST:
        from_x = beginning(slots, m, gap, step, images * (CI * H * W), ALIGNED)
        if ALONG:
            x_along += beginning(slots, m, gap_along, step_along, images * (CI * H * W), ALIGNED)
        from_out *= images
    else:
        between_x *= maps
        between_out *= maps
    pixel_x: tl.constexpr = CI if LAST else 1
    pixel_out: tl.constexpr = CO if LAST else 1
    channel_x: tl.constexpr = 1 if LAST else H * W
    channel_out: tl.constexpr = 1 if LAST else HO * WO
    totals = ()
    for _ in tl.static_range(ROWS * K):
        totals = totals + (tl.zeros([BO, BI], partial.dtype.element_ty),)
    for start in range(split * share, min((split + 1) * share, pixels), BP):
        n = start + tl.arange(0, BP)
        known = n < pixels
        first = start // (HO * WO)
        image = n // (HO * WO) - first
        place = n % (HO * WO)
        row, column = place // WO, place % WO
        there = known[:, None] if CO % BO == 0 else known[:, None] & (o < CO)[None, :]
        to = gradient + from_out + first.to(tl.int64) * between_out
        at = (image * between_out + place * pixel_out)[:, None] + (o * channel_out)[None, :]
        g = tl.trans(tl.load(to + at, mask=there, other=0.0))  # [BO, BP]
        far = first.to(tl.int64) * between_x
        added = ()
        for tap in tl.static_range(ROWS * K):
            at, inside = tap_of(row, column, band * (ROWS * K) + tap, H, W, K, STRIDE, PADDING, DILATION, False)
            inside &= known
            there = inside[:, None] if CI % BI == 0 else inside[:, None] & (c < CI)[None, :]
            at = (image * between_x + at * pixel_x)[:, None] + (c * channel_x)[None, :]
            if RELU or not ALONG:
                piece = tl.load(x + from_x + far + at, mask=there, other=0.0)  # [BP, BI]
            if ALONG:
                moved = tl.load(x_along + far + at, mask=there, other=0.0)
                piece = tl.where(piece > 0, moved, 0.0) if RELU else moved
            elif RELU:
                piece = tl.maximum(piece, 0.0, propagate_nan=tl.PropagateNan.ALL)
            total = totals[tap]
            if PRECISION == "tf32x3":
                top, g_top = high(piece), high(g)
                total = tl.dot(g - g_top, top, total, input_precision="tf32")
                total = tl.dot(g_top, piece - top, total, input_precision="tf32")
                total = tl.dot(g_top, top, total, input_precision="tf32")
            else:
                total = tl.dot(g, piece, total, input_precision=PRECISION, out_dtype=total.dtype)
            added = added + (total,)
        totals = added
    base = (split * maps + m).to(tl.int64) * (CO * CI * K * K)
    to = partial + base + o[:, None] * (CI * K * K) + c[None, :] * (K * K) + band * (ROWS * K)
    for tap in tl.static_range(ROWS * K):
        tl.store(to + tap, totals[tap], mask=(o < CO)[:, None] & (c < CI)[None, :])


def _correlated(
    read: Read, gradient: Tensor, slots: Tensor, sizes: Sizes, window: Window, relu: bool = False, last: bool = True
) -> Tensor:
    """Returns the gradients [M, Co, Ci, k, k]."""
    if triton_rows.correlates(read, sizes, window, last):
        return triton_rows.correlate(read, gradient, slots, sizes, relu)
    x, kernel, inputs, outputs = read.x, window[0], sizes.inputs, sizes.outputs
    pixels = sizes.images * sizes.out_height * sizes.out_width
    wide_in, wide_out = block(inputs), block(outputs)
    tile, rows, warps, stages, at_once, splits = CORRELATE[size(window), max(wide_in, wide_out)]
    rows = rows if kernel % rows == 0 else 1
    share = triton.cdiv(pixels, splits * tile) * tile
    splits = triton.cdiv(pixels, share)
    partial = x.new_empty((splits, sizes.maps, outputs, inputs, kernel, kernel))
    grid = (kernel // rows * triton.cdiv(inputs, wide_in) * triton.cdiv(outputs, wide_out), sizes.maps, splits)
    launch(
        _correlate, grid, partial, x, gradient, some(read.along, x), slots, read.gap, read.step, read.gap_along,
        read.step_along, share, *sizes, *window, relu, read.along is not None, last, min(read.aligned, at_once), rows,
        wide_in, wide_out, tile, precision(x), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return partial.sum(0) if splits > 1 else partial[0]


def correlate(place: Source, slots: Tensor, relu: bool, gradient: Tensor, window: Window) -> Tensor:
    """See `epochzero.engine.gpu.arena`."""
    return _correlated(Read.at(place), gradient, slots, forward(gradient, place), window, relu=relu)


def correlate_jvp(pair: SourcePair, slots: Tensor, relu: bool, gradients: TensorPair, window: Window) -> Tensor:
    """See `epochzero.engine.gpu.arena`."""
    sizes = forward(gradients[0], pair[0])
    moved = _correlated(Read.at(*pair), gradients[0], slots, sizes, window, relu=relu)
    return moved.add_(_correlated(Read.at(pair[0]), gradients[1], slots, sizes, window, relu=relu))


def correlate_joint(x: Tensor, gradient: Tensor, shape: torch.Size, maps: int, window: Window) -> Tensor:
    """Returns the gradient of weights of this shape from that of the output, for maps [B, M * C, H, W]."""
    x, gradient = x.contiguous(), gradient.contiguous()
    images, channels, height, width = x.shape
    sizes = Sizes(maps, images, channels // maps, height, width, shape[0] // maps, *gradient.shape[2:])
    return _correlated(Read(x), gradient, x, sizes, window, last=False).view(shape)
