"""Batch norm on batch statistics: values and both derivatives against torch and finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from epochzero.plan.ops.batch_statistics import batch_norm


def inputs(shape: tuple[int, ...], affine: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    rng = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=rng, dtype=torch.float64).requires_grad_()

    return drawn(*shape), drawn(shape[1]) if affine else None, drawn(shape[1]) if affine else None


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 2, 3), (6, 2)])
def test_both_derivatives(shape: tuple[int, ...], affine: bool) -> None:
    given = inputs(shape, affine)

    def function(*tensors: Tensor | None) -> Tensor:
        return batch_norm(*tensors, 1e-3)  # type: ignore[arg-type, call-arg]

    assert gradcheck(function, given, check_forward_ad=True)  # type: ignore[arg-type]
    assert gradgradcheck(function, given)  # type: ignore[arg-type]


def test_equals_torch_in_value_and_gradient() -> None:
    x, weight, bias = inputs((8, 4, 5, 5), True)
    assert weight is not None
    assert bias is not None
    ours, theirs = batch_norm(x, weight, bias, 1e-5), F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-5)
    assert torch.equal(ours, theirs)
    for one, other in zip(
        torch.autograd.grad(ours.sin().sum(), [x, weight, bias]),
        torch.autograd.grad(theirs.sin().sum(), [x, weight, bias]),
        strict=True,
    ):
        assert torch.equal(one, other)
