"""Windows, weights, precision and inputs of the GPU kernels of convolutions and their gradients."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from epochzero.engine.gpu.arena import Source, Window
from epochzero.engine.gpu.triton_arena import WIDE, address, launch

SPLIT = 1024
"""weights that one block splits"""


@triton.jit
def high(a: tl.tensor) -> tl.tensor:
    """Returns the numbers without their last 13 bits."""
    return (a.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def tap_of(
    row: tl.tensor,
    column: tl.tensor,
    tap: tl.tensor,
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
) -> tl.tensor:
    """The pixel of the input that a place of the output sees through one tap of the window, and whether it is there."""
    if K == 1 and STRIDE == 1 and PADDING == 0:
        return row * W + column, row >= 0
    if TRANSPOSED:
        y = row + PADDING - tap // K * DILATION
        z = column + PADDING - tap % K * DILATION
        inside = (y >= 0) & (y < H * STRIDE) & (z >= 0) & (z < W * STRIDE)
        if STRIDE > 1:
            inside &= (y % STRIDE == 0) & (z % STRIDE == 0)
            y //= STRIDE
            z //= STRIDE
        return y * W + z, inside
    y = row * STRIDE - PADDING + tap // K * DILATION
    z = column * STRIDE - PADDING + tap % K * DILATION
    return y * W + z, (y >= 0) & (y < H) & (z >= 0) & (z < W)


@triton.jit(do_not_specialize=["lows"])
def _split(
    out: tl.tensor,
    weight: tl.tensor,
    lows: tl.int64,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TAPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    LOWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Weights [out, in, taps] of a map, of the transpose [in, out, taps], by taps: [taps, in, out]; low parts last."""
    size: tl.constexpr = INPUTS * OUTPUTS * TAPS
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(1).to(tl.int64) * size
    o, c, tap = n % OUTPUTS, n // OUTPUTS % INPUTS, n // (OUTPUTS * INPUTS)
    own = (c * OUTPUTS + o) if TRANSPOSED else (o * INPUTS + c)
    value = tl.load(weight + begin + own * TAPS + tap, mask=n < size, other=0.0)
    to = out + begin + n
    if LOWS:
        tl.store(to + lows, value - high(value), mask=n < size)
        value = high(value)
    tl.store(to, value, mask=n < size)


def precision(x: Tensor) -> str:
    """Returns how products round: three of tensor cores, one where torch may, or (double precision) exactly."""
    return "ieee" if x.dtype == torch.float64 else "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"


def block(channels: int) -> int:
    return 16 if channels <= 16 else 32 if channels <= 32 else 64


def size(window: Window) -> int:
    """Returns the side of the measured window that is most like this one."""
    return 1 if window[0] == 1 else 3


def lows_of(weight: Tensor) -> int:
    """Returns where the low parts of weights begin, a multiple of `WIDE`."""
    return -(-weight.numel() // WIDE) * WIDE


def by_taps(weight: Tensor, inputs: int, outputs: int, transposed: bool) -> Tensor:
    """Returns weights [M * Co, Ci, k, k] in the layout of `_split`; of the transpose, inputs are the Co."""
    taps = weight.shape[2] * weight.shape[3]
    split = precision(weight) == "tf32x3"
    out = weight.new_empty(2 * lows_of(weight) if split else weight.numel())
    each = inputs * outputs * taps
    launch(
        _split, (triton.cdiv(each, SPLIT), weight.numel() // each), out, weight.contiguous(), lows_of(weight), inputs,
        outputs, taps, transposed, split, SPLIT, num_warps=4,
    )  # fmt: skip
    return out


class Sizes(NamedTuple):
    """The sizes of a convolution of many maps."""

    maps: int
    images: int
    inputs: int
    height: int
    width: int
    outputs: int
    out_height: int
    out_width: int


class Read(NamedTuple):
    """The input of a kernel: a tensor and, for slots, offsets in it; and the same of velocities, if there are any."""

    x: Tensor
    gap: int = 0
    step: int = 0
    along: Tensor | None = None
    gap_along: int = 0
    step_along: int = 0
    aligned: int = WIDE

    @staticmethod
    def at(place: Source, velocities: Source | None = None) -> Read:
        gap, step, aligned = address(place)
        if velocities is None:
            return Read(place.arena, gap, step, aligned=aligned)
        gap_along, step_along, also = address(velocities)
        return Read(place.arena, gap, step, velocities.arena, gap_along, step_along, min(aligned, also))


def forward(out: Tensor, place: Source) -> Sizes:
    """Returns the sizes of a convolution from the maps of a source to `out`."""
    maps, images, *size, outputs = out.shape
    _, _, height, width, inputs = place.arena.shape
    return Sizes(maps, images, inputs, height, width, outputs, *size)


def some(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Returns the tensor, or another where there is none: a kernel needs some tensor even where it reads none."""
    return other if tensor is None else tensor
