"""Addresses of maps, in an arena or outside of it, and the launch of our GPU kernels."""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from epochzero.engine.gpu import compiling
from epochzero.engine.gpu.arena import Source, launched

WIDE = 16
"""maps that begin at multiples of this number are read several numbers at a time"""


@triton.jit
def beginning(
    slots: tl.tensor, m: tl.tensor, gap: tl.tensor, step: tl.tensor, size: tl.tensor, ALIGNED: tl.constexpr
) -> tl.tensor:
    """Returns the offset of the m-th map from the arena; those outside begin at `gap`, `step` apart."""
    slot = tl.load(slots + m).to(tl.int64)
    at = tl.where(slot < 0, gap - (slot + 1) * step, slot * size)
    return tl.multiple_of(at, ALIGNED) if ALIGNED else at


def address(place: Source) -> tuple[int, int, int]:
    """Returns gap, step, and the number at whose multiples all maps begin: `WIDE`, or 0 for any."""
    arena, outside = place
    size = math.prod(arena.shape[1:])
    if outside is None:
        return 0, 0, 0 if size % WIDE else WIDE
    gap = (outside.data_ptr() - arena.data_ptr()) // arena.element_size()
    return gap, size if len(outside) > 1 else 0, 0 if size % WIDE or gap % WIDE else WIDE


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **options: int) -> None:
    """Runs a kernel; or only compiles it, where it is this process's turn (`epochzero.engine.gpu.compiling`)."""

    def run() -> None:
        if not compiling.compiled_ahead(kernel, grid, given, options):
            kernel[grid](*given, **options)

    launched(kernel.__name__, run)
