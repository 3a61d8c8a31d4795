"""GPU kernels for many networks side by side: average pooling and gathering sums.

Every tensor is float32 and contiguous, [B, M * C, H, W]: M maps of C channels, one map for each network. Sums are taken
in a fixed order that does not depend on M, without atomics, so a network's numbers do not depend on its company.
"""

# Triton knows neither stubs nor unpacking, and its compile-time arguments are capitals by custom.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, assignment"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BOX_BLOCK = 1024
GATHER_BLOCK = 1024
SOURCES = 8
"""How many tensors one launch of `gather` reads."""


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
    INNER: tl.constexpr,
    ADD: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One output map, BLOCK of its places over the batch: the sum of its terms; with ADD, on top of what is there.

    With MASKED, 0 where `on`, of the output's shape, is not positive.
    """
    m = tl.program_id(0) % maps
    start = (tl.program_id(0) // maps).to(tl.int64) * BLOCK
    first = start // INNER
    e = (start - first * INNER).to(tl.int32) + tl.arange(0, BLOCK)
    whole: tl.constexpr = INNER % BLOCK == 0
    image = first if whole else first + e // INNER
    place = e if whole else e % INNER
    written = e < INNER if whole else image < images
    begin, end = tl.load(indptr + m), tl.load(indptr + m + 1)
    at = (image * maps + m) * INNER + place
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
        total += tl.load(source + (image * tl.where(s < 4, few, many) + slot) * INNER + place, mask=written, other=0.0)
    if MASKED:
        total = tl.where(tl.load(on + at, mask=written, other=0.0) > 0, total, 0.0)
    tl.store(to, total, mask=written if not ADD else written & (begin < end))


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
    _gather[grid](
        out, out if on is None else on, *terms, *pointers, *counts, maps, images, inner, add, on is not None,
        GATHER_BLOCK, num_warps=4,
    )  # fmt: skip
