"""GPU kernels for many networks at once: convolution and its transpose.

A map is one network's [B, C, H, W]. The maps of M networks lie in one of two ways:

    one after the other, each [B, H, W, C]      where the map of a network begins, a table says (`triton_arena`)
    side by side, [B, M * C, H, W]              as torch has them

Sums are taken in a fixed order that does not depend on M, without atomics, so a network's numbers do not depend on the
others. Tensor cores multiply numbers of 11 bits; three of their products come close to single precision:

    a b  =  a_high b_high + a_high b_low + a_low b_high        a_high: a without its last 13 bits, a_low = a - a_high
"""

# Triton knows neither stubs nor unpacking, and its compile-time arguments are capitals by custom.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803, PLR0912, PLR0915

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu import triton_rows
from epochzero.engine.gpu.arena import Moments, Source, SourcePair, TensorPair, Window
from epochzero.engine.gpu.triton_arena import WIDE, address, beginning, launch
from epochzero.engine.gpu.triton_windows import (
    Read,
    Sizes,
    block,
    by_taps,
    forward,
    high,
    lows_of,
    precision,
    size,
    some,
    tap_of,
)

# By the window and the wider of a map's input and output channels: blocks of input channels, output channels and
# pixels, warps, stages, and how many numbers are read at a time. Measured on an H200 with 64 maps of 64 images.
CONVOLVE = {
    (3, 16): (16, 16, 128, 2, 3, 4),
    (3, 32): (16, 32, 256, 4, 3, 4),
    (3, 64): (16, 64, 64, 2, 3, 4),
    (1, 16): (16, 16, 256, 4, 2, 4),
    (1, 32): (32, 32, 128, 4, 2, 4),
    (1, 64): (64, 64, 128, 4, 2, 4),
}

GROUP = 4
"""warps whose products Hopper's tensor cores take together"""


@triton.jit
def _times(
    total: tl.tensor,
    piece: tl.tensor,
    factor: tl.tensor,
    lows: tl.tensor,
    there: tl.tensor,
    WHOLE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """`total` and the product of a piece with weights, whose low parts lie `lows` further on."""
    factors = tl.load(factor) if WHOLE else tl.load(factor, mask=there, other=0.0)
    if PRECISION == "tf32x3":
        top = high(piece)
        total = tl.dot(piece - top, factors, total, input_precision="tf32")
        factor += lows
        low_factors = tl.load(factor) if WHOLE else tl.load(factor, mask=there, other=0.0)
        total = tl.dot(top, low_factors, total, input_precision="tf32")
        total = tl.dot(top, factors, total, input_precision="tf32")
    else:
        total = tl.dot(piece, factors, total, input_precision=PRECISION, out_dtype=total.dtype)
    return total


@triton.jit
def _product(
    total: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    x_along: tl.tensor,
    weight_along: tl.tensor,
    lows: tl.tensor,
    tap: tl.tensor,
    c: tl.tensor,
    o: tl.tensor,
    image: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    known: tl.tensor,
    CI: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    CO: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    RELU: tl.constexpr,
    ALONG: tl.constexpr,
    LAST: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """`total` and what one tap and BI input channels add to it."""
    at, inside = tap_of(row, column, tap, H, W, K, STRIDE, PADDING, DILATION, TRANSPOSED)
    inside &= known
    there = inside[:, None] if CI % BI == 0 else inside[:, None] & (c < CI)[None, :]
    pixel: tl.constexpr = CI if LAST else 1
    channel: tl.constexpr = 1 if LAST else H * W
    at = (image + at * pixel)[:, None] + (c * channel)[None, :]
    piece = tl.load(x + at, mask=there, other=0.0)
    factor = (tap * CI + c[:, None]) * CO + o[None, :]
    real = (c < CI)[:, None] & (o < CO)[None, :]
    whole: tl.constexpr = CI % BI == 0 and CO % BO == 0
    if ALONG:
        moved = tl.load(x_along + at, mask=there, other=0.0)
        if RELU:
            moved = tl.where(piece > 0, moved, 0.0)
        total = _times(total, moved, weight + factor, lows, real, whole, PRECISION)
    if RELU:
        piece = tl.maximum(piece, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return _times(total, piece, (weight_along if ALONG else weight) + factor, lows, real, whole, PRECISION)


@triton.jit(do_not_specialize=["gap", "step", "gap_along", "step_along", "maps", "images"])
def _convolve(
    out: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    on: tl.tensor,
    moments: tl.tensor,
    x_along: tl.tensor,
    weight_along: tl.tensor,
    slots: tl.tensor,
    which: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    gap_along: tl.int64,
    step_along: tl.int64,
    lows: tl.int64,
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
    TRANSPOSED: tl.constexpr,
    RELU: tl.constexpr,
    MASKED: tl.constexpr,
    MOMENTS: tl.constexpr,
    ALONG: tl.constexpr,
    LAST: tl.constexpr,
    ALIGNED: tl.constexpr,
    QUARTERS: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    BP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """One map, BO of its output channels, BP output pixels: a product over input channels for each tap.

    RELU: of max(x, 0). MASKED: 0 where `on`, of the output's shape, is not positive. MOMENTS: the mean of each channel
    of the tile, and its sum of squares around that, too. ALONG: of the velocities of `x` with the weights, and of `x`
    with the velocities of the weights. With LAST, the slots tell where the maps of `x` begin or, if it is the
    transpose, those of `on`, and `which` weights are theirs. QUARTERS: the transpose has stride 2, and a tile has the
    pixels of even or odd rows and columns, which see one or two rows and columns of the window.
    """
    tile, m = tl.program_id(0), tl.program_id(1)
    odd_row, odd_column = tile % 2, tile // 2 % 2
    start = (tile // 4 if QUARTERS else tile) * BP
    each: tl.constexpr = H * W if QUARTERS else HO * WO
    n = start + tl.arange(0, BP)
    known = n < images * each
    first = start // each
    image, place = n // each - first, n % each
    if QUARTERS:
        row, column = place // W * 2 + odd_row, place % W * 2 + odd_column
        place = row * WO + column
    else:
        row, column = place // WO, place % WO
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    from_x = m.to(tl.int64) * (CI * H * W)
    from_out = m.to(tl.int64) * (CO * HO * WO)
    between_x = CI * H * W  # from one image to the next
    between_out = CO * HO * WO
    if LAST:
        from_x *= images
        from_out *= images
    else:
        between_x *= maps
        between_out *= maps
    from_on = from_out
    if LAST and TRANSPOSED:
        if MASKED:
            from_on = beginning(slots, m, gap, step, images * (CO * HO * WO), ALIGNED)
    elif LAST:
        from_x = beginning(slots, m, gap, step, images * (CI * H * W), ALIGNED)
    own = tl.load(which + m).to(tl.int64) if LAST else m.to(tl.int64)
    weight += own * (K * K * CO * CI)
    if ALONG:
        from_along = from_x
        if not TRANSPOSED:
            from_along = beginning(slots, m, gap_along, step_along, images * (CI * H * W), ALIGNED)
        x_along += from_along + first.to(tl.int64) * between_x
        weight_along += own * (K * K * CO * CI)
    x += from_x + first.to(tl.int64) * between_x
    far = image * between_x
    blocks: tl.constexpr = (CI + BI - 1) // BI
    total = tl.zeros([BP, BO], out.dtype.element_ty)
    if K == 1:
        for part in tl.static_range(blocks):
            c = part * BI + tl.arange(0, BI)
            total = _product(
                total, x, weight, x_along, weight_along, lows, 0, c, o, far, row, column, known, CI, H, W, CO, K,
                STRIDE, PADDING, DILATION, TRANSPOSED, RELU, ALONG, LAST, BI, BO, PRECISION,
            )  # fmt: skip
    else:
        taps = K * K
        if QUARTERS:
            taps = (1 + odd_row) * (1 + odd_column)
        for part in range(taps * blocks):
            c = part % blocks * BI + tl.arange(0, BI)
            tap = part // blocks
            if QUARTERS:
                tap_row = tl.where(odd_row == 1, tap // (1 + odd_column) * 2, 1)
                tap = tap_row * K + tl.where(odd_column == 1, tap % 2 * 2, 1)
            total = _product(
                total, x, weight, x_along, weight_along, lows, tap, c, o, far, row, column, known, CI, H, W, CO, K,
                STRIDE, PADDING, DILATION, TRANSPOSED, RELU, ALONG, LAST, BI, BO, PRECISION,
            )  # fmt: skip
    far = first.to(tl.int64) * between_out
    pixel: tl.constexpr = CO if LAST else 1
    channel: tl.constexpr = 1 if LAST else HO * WO
    at = (image * between_out + place * pixel)[:, None] + (o * channel)[None, :]
    written = known[:, None] & (o < CO)[None, :]
    if MASKED:
        total = tl.where(tl.load(on + from_on + far + at, mask=written, other=0.0) > 0, total, 0.0)
    tl.store(out + from_out + far + at, total, mask=written)
    if MOMENTS:
        count = tl.minimum(images * (HO * WO) - start, BP)
        mean = tl.sum(tl.where(known[:, None], total, 0.0), 0) / count
        away = tl.where(known[:, None], total - mean[None, :], 0.0)
        to = moments + (m * tl.num_programs(0) + tile).to(tl.int64) * (2 * CO) + o
        tl.store(to, mean, mask=o < CO)
        tl.store(to + CO, tl.sum(away * away, 0), mask=o < CO)


def _launch(
    out: Tensor,
    read: Read,
    weights: tuple[Tensor, Tensor | None],
    on: Tensor | None,
    slots: Tensor,
    which: Tensor,
    sizes: Sizes,
    window: Window,
    transposed: bool,
    relu: bool = False,
    moments: bool = False,
    last: bool = True,
) -> Moments | None:
    x, weight = read.x, weights[0]
    if triton_rows.convolves(read, sizes, window, last):
        return triton_rows.convolve(out, read, weight, on, slots, which, sizes, transposed, relu, moments)
    taps, taps_along = (None if w is None else by_taps(w, sizes.inputs, sizes.outputs, transposed) for w in weights)
    wide_in, wide_out = block(sizes.inputs), block(sizes.outputs)
    most_in, most_out, tile, warps, stages, at_once = CONVOLVE[size(window), max(wide_in, wide_out)]
    if x.dtype == torch.float64 or (read.along is not None and warps == GROUP):
        warps *= 2  # numbers twice as long, or two products of a group of warps, need more room
    wide_in, wide_out = min(wide_in, most_in), min(wide_out, most_out)
    halved = (sizes.out_height, sizes.out_width) == (2 * sizes.height, 2 * sizes.width)
    quarters = transposed and halved and window == (3, 2, 1, 1)
    out_pixels = sizes.height * sizes.width if quarters else sizes.out_height * sizes.out_width
    tiles = triton.cdiv(sizes.images * out_pixels, tile) * (4 if quarters else 1)
    partial = x.new_empty((sizes.maps, tiles, 2, sizes.outputs)) if moments else None
    grid = (tiles, sizes.maps, triton.cdiv(sizes.outputs, wide_out))
    launch(
        _convolve, grid, out, x, taps, some(on, x), some(partial, x), some(read.along, x), some(taps_along, x), slots,
        which, read.gap, read.step, read.gap_along, read.step_along, lows_of(weight), *sizes, *window, transposed, relu,
        on is not None, moments, read.along is not None, last, min(read.aligned, at_once), quarters, wide_in, wide_out,
        tile, precision(x), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return None if partial is None else Moments(partial, tile)


def convolve(
    out: Tensor,
    place: Source,
    slots: Tensor,
    weight: Tensor,
    which: Tensor,
    window: Window,
    relu: bool,
    moments: bool,
) -> Moments | None:
    """See `epochzero.engine.gpu.arena`."""
    sizes = forward(out, place)
    return _launch(
        out, Read.at(place), (weight, None), None, slots, which, sizes, window, False, relu=relu, moments=moments
    )


def convolve_jvp(
    out: Tensor, pair: SourcePair, slots: Tensor, weights: TensorPair, which: Tensor, window: Window, relu: bool
) -> None:
    """See `epochzero.engine.gpu.arena`."""
    _launch(out, Read.at(*pair), weights, None, slots, which, forward(out, pair[0]), window, False, relu=relu)


def convolve_back(
    out: Tensor, gradient: Tensor, weight: Tensor, which: Tensor, window: Window, on: Source | None, slots: Tensor
) -> None:
    """See `epochzero.engine.gpu.arena`."""
    _back(out, (gradient, None), (weight, None), which, window, on, slots)


def convolve_back_jvp(
    out: Tensor,
    gradients: TensorPair,
    weights: TensorPair,
    which: Tensor,
    window: Window,
    on: Source | None,
    slots: Tensor,
) -> None:
    """See `epochzero.engine.gpu.arena`."""
    _back(out, gradients, weights, which, window, on, slots)


def _back(
    out: Tensor,
    gradients: tuple[Tensor, Tensor | None],
    weights: tuple[Tensor, Tensor | None],
    which: Tensor,
    window: Window,
    on: Source | None,
    slots: Tensor,
) -> None:
    maps, images, *size, inputs = out.shape
    _, _, height, width, outputs = gradients[0].shape
    gap, step, aligned = (0, 0, WIDE) if on is None else address(on)
    read = Read(gradients[0], gap, step, gradients[1], aligned=aligned)
    sizes = Sizes(maps, images, outputs, height, width, inputs, *size)
    _launch(out, read, weights, None if on is None else on.arena, slots, which, sizes, window, True)


def convolve_joint(
    x: Tensor, weight: Tensor, size: tuple[int, int], maps: int, window: Window, transposed: bool, on: Tensor | None
) -> Tensor:
    """Convolves every map of x [B, M * Ci, H, W] with its weights [M * Co, Ci, k, k], or its transpose.

    0 where `on`, if it is given, is not positive.
    """
    x = x.contiguous()
    images, channels, height, width = x.shape
    outputs = weight.shape[1] if transposed else weight.shape[0] // maps
    out = x.new_empty((images, maps * outputs, *size))
    sizes = Sizes(maps, images, channels // maps, height, width, outputs, *size)
    mask = None if on is None else on.contiguous()
    _launch(out, Read(x), (weight, None), mask, x, x, sizes, window, transposed, last=False)
    return out
