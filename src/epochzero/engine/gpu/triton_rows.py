"""GPU kernels for many networks at once: windows of 3x3 pixels, read row by row.

What limits a convolution or a pooling of few channels is how often its pixels are read: nine times, if every output
pixel looks for its own. Here a block goes down the rows of some images and reads each row three times, once for each
column of the window; what it adds to the rows above, here and below is kept until they are complete. Gradients of
weights read a row of pixels three times, too, and the three rows of gradients that it meets.
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment, var-annotated"
# ruff: noqa: N803, RUF005

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu.arena import Moments, Source, Window
from epochzero.engine.gpu.triton_arena import WIDE, address, beginning, launch
from epochzero.engine.gpu.triton_windows import Read, Sizes, by_taps, high, lows_of, precision, some

WINDOW = (3, 1, 1, 1)
CHANNELS = 16
"""of a product. Convolutions of more are as quick pixel by pixel: on an H200 a map of 64 images takes 4.9 microseconds
with 16 channels in place of 7.3, and no less with 32 or 64"""
DOWN = 128
"""pixels of one row, of several images, in a convolution"""
ACROSS, SHARES = 32, 32
"""pixels of one row in a gradient of weights, and shares of the rows; fewer of wider maps, which have fewer rows"""
SMOOTH, TALL = 2048, 8
"""numbers of one row in a pooling, and rows"""


@triton.jit
def _read(
    x: tl.tensor, at: tl.tensor, column: tl.tensor, y: tl.tensor, shift: tl.constexpr, C: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, RELU: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The pixels of row y that lie `shift` columns on, 0 outside of the image."""
    inside = (column + shift >= 0) & (column + shift < W) & (y >= 0) & (y < H)
    piece = tl.load(x + y * (W * C) + shift * C + at, mask=inside[:, None], other=0.0)
    if RELU:
        piece = tl.maximum(piece, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return piece


@triton.jit
def _plus(total: tl.tensor, a: tl.tensor, b: tl.tensor, b_low: tl.tensor, PRECISION: tl.constexpr) -> tl.tensor:
    """`total` and a product with what was split before: three of tensor cores, or one."""
    if PRECISION == "tf32x3":
        top = high(a)
        total = tl.dot(a - top, b, total, input_precision="tf32")
        total = tl.dot(top, b_low, total, input_precision="tf32")
        return tl.dot(top, b, total, input_precision="tf32")
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit(do_not_specialize=["gap", "step", "lows", "images"])
def _down(
    out: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    on: tl.tensor,
    moments: tl.tensor,
    slots: tl.tensor,
    which: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    lows: tl.int64,
    images: tl.tensor,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    RELU: tl.constexpr,
    MASKED: tl.constexpr,
    MOMENTS: tl.constexpr,
    ALIGNED: tl.constexpr,
    BP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """A convolution or its transpose of BP / W images of one map; see `triton_conv._convolve` for what is asked."""
    group, m = tl.program_id(0), tl.program_id(1)
    n, c = tl.arange(0, BP), tl.arange(0, C)
    column = n % W
    size: tl.constexpr = H * W * C
    first = (group * (BP // W)).to(tl.int64) * size
    at = (n // W * size + column * C)[:, None] + c[None, :]
    from_x = m.to(tl.int64) * images * size
    out += from_x + first
    if TRANSPOSED:
        if MASKED:
            on += beginning(slots, m, gap, step, images * size, ALIGNED) + first
    else:
        from_x = beginning(slots, m, gap, step, images * size, ALIGNED)
    x += from_x + first
    weight += tl.load(which + m).to(tl.int64) * (9 * C * C)
    factors, low_factors = (), ()
    for tap in tl.static_range(9):
        own = weight + (8 - tap if TRANSPOSED else tap) * (C * C) + tl.arange(0, C)[:, None] * C + c[None, :]
        factors = factors + (tl.load(own),)
        low_factors = low_factors + (tl.load(own + lows) if PRECISION == "tf32x3" else factors[tap],)
    above = tl.zeros([BP, C], tl.float32)
    here = tl.zeros([BP, C], tl.float32)
    for y in range(H + 1):
        below = tl.zeros([BP, C], tl.float32)
        for j in tl.static_range(3):
            piece = _read(x, at, column, y, j - 1, C, H, W, RELU)
            below = _plus(below, piece, factors[j], low_factors[j], PRECISION)
            here = _plus(here, piece, factors[j + 3], low_factors[j + 3], PRECISION)
            above = _plus(above, piece, factors[j + 6], low_factors[j + 6], PRECISION)
        if y > 0:
            far = (y - 1) * (W * C) + at
            if MASKED:
                above = tl.where(tl.load(on + far) > 0, above, 0.0)
            tl.store(out + far, above)
            if MOMENTS:
                mean = tl.sum(above, 0) / BP
                away = above - mean[None, :]
                tile = (m * tl.num_programs(0) + group) * H + y - 1
                to = moments + tile.to(tl.int64) * (2 * C) + c
                tl.store(to, mean)
                tl.store(to + C, tl.sum(away * away, 0))
        above = here
        here = below


@triton.jit(do_not_specialize=["gap", "step", "gap_along", "step_along", "share", "maps", "images"])
def _across(
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
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    RELU: tl.constexpr,
    ALONG: tl.constexpr,
    ALIGNED: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """The gradients of BC by BC of one map's weights, of one share of its rows; see `triton_correlate._correlate`."""
    part, m, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n, k = tl.arange(0, BP), tl.arange(0, BC)
    c, o = part % (C // BC) * BC + k, part // (C // BC) * BC + k
    column = n % W
    size: tl.constexpr = H * W * C
    at = (n // W * size + column * C)[:, None]
    x += beginning(slots, m, gap, step, images * size, ALIGNED)
    if ALONG:
        x_along += beginning(slots, m, gap_along, step_along, images * size, ALIGNED)
    gradient += m.to(tl.int64) * images * size
    totals = ()
    for _ in tl.static_range(9):
        totals = totals + (tl.zeros([BC, BC], tl.float32),)
    for row in range(split * share, min((split + 1) * share, images // (BP // W) * H)):
        y = row % H
        first = row // H * (BP // W) * size
        added = ()
        for i in tl.static_range(3):
            g = tl.trans(_read(gradient + first, at + o[None, :], column, y + 1 - i, 0, C, H, W, False))  # [BC, BP]
            for j in tl.static_range(3):
                if RELU or not ALONG:
                    piece = _read(x + first, at + c[None, :], column, y, j - 1, C, H, W, RELU)
                if ALONG:
                    moved = _read(x_along + first, at + c[None, :], column, y, j - 1, C, H, W, False)
                    piece = tl.where(piece > 0, moved, 0.0) if RELU else moved
                top = high(piece) if PRECISION == "tf32x3" else piece
                added = added + (_plus(totals[3 * i + j], g, top, piece - top, PRECISION),)
        totals = added
    to = partial + (split * maps + m).to(tl.int64) * (9 * C * C) + o[:, None] * (9 * C) + c[None, :] * 9
    for tap in tl.static_range(9):
        tl.store(to + tap, totals[tap])


@triton.jit(do_not_specialize=["gap", "step", "images"])
def _smooth(
    out: tl.tensor,
    x: tl.tensor,
    slots: tl.tensor,
    gap: tl.int64,
    step: tl.int64,
    images: tl.tensor,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ALIGNED: tl.constexpr,
    BH: tl.constexpr,
    BP: tl.constexpr,
) -> None:
    """BH rows of means over the windows of BP / W images of one map, without what is outside; or the transpose."""
    group, m = tl.program_id(0), tl.program_id(1)
    begin = tl.program_id(2) * BH
    n, c = tl.arange(0, BP), tl.arange(0, C)
    column = n % W
    size: tl.constexpr = H * W * C
    first = (group * (BP // W)).to(tl.int64) * size
    known = (n // W + group * (BP // W) < images)[:, None]
    at = (n // W * size + column * C)[:, None] + c[None, :]
    x += beginning(slots, m, gap, step, images * size, ALIGNED) + first
    out += m.to(tl.int64) * images * size + first
    wide = _covered(column, W)[:, None]
    above = tl.zeros([BP, C], out.dtype.element_ty)
    here = tl.zeros([BP, C], out.dtype.element_ty)
    for y in range(begin - 1, begin + BH + 1):
        line = tl.zeros([BP, C], out.dtype.element_ty)
        for j in tl.static_range(3):
            near = column + (j - 1)
            inside = known & ((near >= 0) & (near < W) & (y >= 0) & (y < H))[:, None]
            value = tl.load(x + y * (W * C) + (j - 1) * C + at, mask=inside, other=0.0)
            line += value / _covered(near, W)[:, None] if TRANSPOSED else value
        if TRANSPOSED:
            line /= _covered(y, H)
        mean = above + line
        if not TRANSPOSED:
            mean /= wide * _covered(y - 1, H)
        tl.store(out + (y - 1) * (W * C) + at, mean, mask=known & (y > begin))
        above = here + line
        here = line


@triton.jit
def _covered(place: tl.tensor, SIZE: tl.constexpr) -> tl.tensor:
    """Counts the positions of an axis that the window around `place` covers; at least 1."""
    return tl.maximum(tl.minimum(place + 2, SIZE) - tl.maximum(place - 1, 0), 1).to(tl.float32)


def _suits(read: Read, sizes: Sizes, window: Window, last: bool, pixels: int) -> bool:
    kind = last and read.x.dtype == torch.float32 and read.aligned == WIDE
    whole = pixels % sizes.width == 0 and sizes.images % (pixels // sizes.width) == 0
    return kind and whole and window == WINDOW and sizes.inputs == sizes.outputs


def convolves(read: Read, sizes: Sizes, window: Window, last: bool) -> bool:
    """Returns True where a convolution, or its transpose, is computed row by row."""
    return read.along is None and sizes.inputs == CHANNELS and _suits(read, sizes, window, last, DOWN)


def convolve(
    out: Tensor,
    read: Read,
    weight: Tensor,
    on: Tensor | None,
    slots: Tensor,
    which: Tensor,
    sizes: Sizes,
    transposed: bool,
    relu: bool,
    moments: bool,
) -> Moments | None:
    """Computes a convolution for which `convolves` is true, or its transpose."""
    groups = sizes.images * sizes.width // DOWN
    taps = by_taps(weight, CHANNELS, CHANNELS, transposed)
    partial = out.new_empty((sizes.maps, groups * sizes.height, 2, CHANNELS)) if moments else None
    launch(
        _down, (groups, sizes.maps), out, read.x, taps, some(on, out), some(partial, out), slots, which, read.gap,
        read.step, lows_of(weight), sizes.images, CHANNELS, sizes.height, sizes.width, transposed, relu, on is not None,
        moments, read.aligned, DOWN, precision(out), num_warps=2, num_stages=2,
    )  # fmt: skip
    return None if partial is None else Moments(partial, DOWN)


def correlates(read: Read, sizes: Sizes, window: Window, last: bool) -> bool:
    """Returns True where the gradient of a convolution's weights is computed row by row."""
    return sizes.inputs % CHANNELS == 0 and _suits(read, sizes, window, last, ACROSS)


def correlate(read: Read, gradient: Tensor, slots: Tensor, sizes: Sizes, relu: bool) -> Tensor:
    """Returns the gradients [M, C, C, 3, 3] of weights for which `correlates` is true."""
    channels, rows = sizes.inputs, sizes.images * sizes.width // ACROSS * sizes.height
    share = triton.cdiv(rows, max(1, SHARES * CHANNELS // channels))
    splits = triton.cdiv(rows, share)
    partial = gradient.new_empty((splits, sizes.maps, channels, channels, 3, 3))
    launch(
        _across, ((channels // CHANNELS) ** 2, sizes.maps, splits), partial, read.x, gradient, some(read.along, read.x),
        slots, read.gap, read.step, read.gap_along, read.step_along, share, sizes.maps, sizes.images, channels,
        sizes.height, sizes.width, relu, read.along is not None, read.aligned, CHANNELS, ACROSS, precision(gradient),
        num_warps=1, num_stages=2,
    )  # fmt: skip
    return partial.sum(0)


def smooths(out: Tensor, window: Window) -> bool:
    """Returns True where a pooling, or its transpose, is computed row by row."""
    height, width, channels = out.shape[2:]
    powers = width & (width - 1) == 0 and channels & (channels - 1) == 0
    return window == WINDOW and powers and height % TALL == 0 and width * channels <= SMOOTH


def smooth(out: Tensor, place: Source, slots: Tensor, transposed: bool) -> None:
    """Writes means over windows for which `smooths` is true, or their transpose."""
    maps, images, height, width, channels = out.shape
    pixels = SMOOTH // channels
    gap, step, aligned = address(place)
    launch(
        _smooth, (triton.cdiv(images * width, pixels), maps, height // TALL), out, place.arena, slots, gap, step,
        images, channels, height, width, transposed, aligned, TALL, pixels, num_warps=4,
    )  # fmt: skip
