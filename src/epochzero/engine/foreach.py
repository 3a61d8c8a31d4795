"""Operations on lists of tensors in few kernel launches: torch's own, which are private, or one tensor after the other.

foreach.add_(parameters, gradients, alpha=-rate)
"""

from __future__ import annotations

from collections.abc import Callable
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
