"""Sums over the units of many networks' maps: on a GPU the maps are read once.

products(a, b)[n, m, c]     = sum_p a[n, m, c, p] b[n, m, c, p]
agreements(x)[m, i, j]      = number of units of network m that are positive for both samples i and j, or for neither
mark(shown, owners, x)      marks the patterns of samples that switch a unit on: bit i is sample i
variances(x)[m, c]          = variance of a channel's values, with divisor n - 1

Maps are tensors [B, M, C, H, W], or maps of M networks in an arena. Counts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from epochzero.engine.gpu import arena, fused
from epochzero.engine.gpu.arena import runs_here
from epochzero.engine.gpu.routine_run import ScatteredMaps

Maps = Tensor | ScatteredMaps


def products(a: Maps, b: Maps) -> Tensor:
    """Returns [B, M, C], the sums over positions of the products of two maps."""
    if isinstance(a, ScatteredMaps) and isinstance(b, ScatteredMaps) and runs_here(a.place.arena):
        return arena.kernels().products_at(a.place, a.slots, b.place, b.slots)  # type: ignore[no-any-return]
    a, b = _dense(a), _dense(b)
    if _fused(a, b):
        return arena.kernels().products(a, b)  # type: ignore[no-any-return]
    return (a * b).flatten(3).sum(3)


def agreements(x: Maps) -> Tensor:
    """Returns [M, B, B]; single precision holds counts exactly up to 2^24."""
    if isinstance(x, ScatteredMaps) and runs_here(x.place.arena):
        return arena.kernels().agreements_at(x.place, x.slots)  # type: ignore[no-any-return]
    x = _dense(x)
    if _fused(x):
        return arena.kernels().agreements(x.flatten(2))  # type: ignore[no-any-return]
    if x.dim() == 5 and not x.is_cuda:
        x = x.movedim(2, -1)  # the order of the units does not matter, and channels are last on the CPU
    signs = torch.where(x > 0, 1.0, -1.0).flatten(2).transpose(0, 1)  # [M, B, A]
    with _short_products():
        return (signs @ signs.mT + signs.shape[2]) / 2


def mark(shown: Tensor, owners: Tensor, x: Maps) -> None:
    """Writes 1 at the patterns [P, 2^B] of each map's owner."""
    if isinstance(x, ScatteredMaps) and runs_here(x.place.arena):
        arena.kernels().mark(shown, owners, x.place, x.slots)
        return
    on = (_dense(x) > 0).flatten(2)  # [B, M, A]
    place = 2 ** torch.arange(len(on), device=on.device).view(-1, 1, 1)
    at = owners.view(-1, 1).long() * shown.shape[1] + (on * place).sum(0)  # [M, A]
    shown.view(-1).index_fill_(0, at.flatten(), 1)


def variances(x: Maps) -> Tensor:
    """Returns [M, C]."""
    if not isinstance(x, ScatteredMaps):
        return torch.var(x, [0, *range(3, x.dim())])
    moments, tile = arena.kernels().moments(x.place, x.slots)
    pixels = math.prod(x.place.arena.shape[1:4])
    counts = (pixels - tile * torch.arange(moments.shape[1], device=moments.device)).clamp(max=tile).view(1, -1, 1)
    means, squares = moments.unbind(2)  # [M, tiles, C]
    away: Tensor = means - (means * counts).sum(1, keepdim=True) / pixels
    variance: Tensor = (squares + counts * away * away).sum(1) / (pixels - 1)
    return variance


def _dense(x: Maps) -> Tensor:
    return x.dense if isinstance(x, ScatteredMaps) else x


def _fused(*maps: Tensor) -> bool:
    return all(fused.available(one) and one.is_contiguous() for one in maps)


@contextmanager
def _short_products() -> Iterator[None]:
    """Allows TF32 on a GPU: it holds 0 and 1 exactly, and adds in single precision."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
