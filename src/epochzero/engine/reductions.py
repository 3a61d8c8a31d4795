"""Sums over the units of many networks' maps: on a GPU in one reading of the maps, elsewhere plainly.

products(a, b)[n, m, c]  = sum_p a[n, m, c, p] b[n, m, c, p]
on_together(x)[m, i, j]  = how many units of network m are positive for the samples i and j both: exact
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from epochzero.plan.ops import fused


def products(a: Tensor, b: Tensor) -> Tensor:
    """[B, M, C] the sums over positions of the products of two maps [B, M, C, H, W]."""
    if _fused(a, b):
        return _kernels().products(a, b)  # type: ignore[no-any-return]
    return (a * b).flatten(3).sum(3)


def on_together(x: Tensor) -> Tensor:
    """[M, B, B] of maps [B, M, ...]; single precision holds counts exactly up to 2^24."""
    if _fused(x):
        return _kernels().on_together(x.flatten(2))  # type: ignore[no-any-return]
    if x.dim() == 5 and not x.is_cuda:
        x = x.movedim(2, -1)  # the order of the units does not matter, and channels lie last on the CPU
    on = (x > 0).float().flatten(2).transpose(0, 1)  # [M, B, A]
    with _short_products():
        return on @ on.mT


def _fused(*maps: Tensor) -> bool:
    return all(fused.available(one) and one.is_contiguous() for one in maps)


@cache
def _kernels() -> Any:
    return import_module("epochzero.engine.triton_reductions")


@contextmanager
def _short_products() -> Iterator[None]:
    """TF32 on a GPU: it holds 0 and 1 exactly, and adds in single precision."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
