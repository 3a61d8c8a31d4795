"""Average pooling with a backward pass of our own: values and both derivatives against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from epochzero.plan.ops.pool import AvgPool


@pytest.mark.parametrize(("kernel", "shape"), [(3, (2, 3, 5, 4)), (5, (1, 2, 6, 7)), (3, (2, 1, 2, 2))])
def test_centred_pool_equals_torch(kernel: int, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()

    def ours(x: Tensor) -> Tensor:
        return AvgPool(kernel, 1, padding=kernel // 2).run((x,), ())

    theirs = F.avg_pool2d(x, kernel, 1, kernel // 2, count_include_pad=False)
    assert torch.allclose(ours(x), theirs, rtol=1e-13)
    assert torch.allclose(ours(x.detach()), theirs, rtol=1e-13)
    one, other = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (ours(x), theirs))
    assert torch.allclose(one, other, rtol=1e-12)
    assert gradcheck(ours, (x,))
    assert gradgradcheck(ours, (x,))
