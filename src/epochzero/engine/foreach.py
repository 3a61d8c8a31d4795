"""Operations on lists of tensors in few kernel launches: torch's own, which are private, or one tensor after the other.

foreach.add_(parameters, gradients, alpha=-rate)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def one_by_one(name: str) -> Callable[..., list[Tensor]]:
    """Returns the operation for lists; an argument that is not a list applies to every tensor."""
    operation = getattr(Tensor, name)

    def run(tensors: list[Tensor], *others: Any, **options: Any) -> list[Tensor]:
        lists = [other if isinstance(other, (list, tuple)) else [other] * len(tensors) for other in others]
        return [operation(*row, **options) for row in zip(tensors, *lists, strict=True)]

    return run


NAMES = ("add_", "addcdiv_", "addcmul", "addcmul_", "copy_", "mul", "mul_", "norm", "sqrt")
OPERATIONS: list[Callable[..., Any]] = [getattr(torch, f"_foreach_{name}", None) or one_by_one(name) for name in NAMES]
add_, addcdiv_, addcmul, addcmul_, copy_, mul, mul_, norm, sqrt = OPERATIONS


def cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns copies, few launches for all that hold numbers of one kind."""
    kinds: dict[torch.dtype, list[str]] = {}
    for name, tensor in tensors.items():
        kinds.setdefault(tensor.dtype, []).append(name)
    copies: dict[str, Tensor] = {}
    for kind, names in kinds.items():
        own = [tensors[name] for name in names]
        copies |= zip(names, mul(own, 1) if kind in EXACT else [t.clone() for t in own], strict=True)
    return {name: copies[name] for name in tensors}


EXACT = {torch.float32, torch.float64, torch.int64}
"""kinds of numbers that a product with 1 leaves alone"""


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Returns True if no number is nan or infinite, with one read; False also where a largest number does not fit."""
    some = [tensor for tensor in tensors if tensor.numel()]
    norms = norm(some, float("inf")) if some else []
    kinds = {one.dtype for one in norms}
    return not some or bool(torch.stack(norms if len(kinds) == 1 else [n.double() for n in norms]).isfinite().all())
