"""Grouped convolutions in double precision as products of matrices, against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from epochzero.engine.population.grouped_kernels import conv_products, recorded_conv_products

GEOMETRIES = [
    # groups, channels in and out of each, kernel, stride, padding
    (3, 2, 4, (3, 3), (1, 1), (1, 1)),
    (5, 3, 2, (1, 1), (1, 1), (0, 0)),
    (4, 2, 2, (3, 3), (2, 2), (1, 1)),
    (2, 4, 3, (1, 1), (2, 2), (0, 0)),
    (2, 1, 1, (1, 7), (1, 2), (0, 3)),
]


@pytest.mark.parametrize(("groups", "inputs", "outputs", "kernel", "stride", "padding"), GEOMETRIES)
@pytest.mark.parametrize("images", [1, 3])
def test_values_and_gradients_are_those_of_torch(
    groups: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    images: int,
) -> None:
    torch.manual_seed(0)
    x = torch.randn(images, groups * inputs, 8, 9, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(groups * outputs, inputs, *kernel, dtype=torch.float64, requires_grad=True)
    ours = conv_products(x, weight, stride, padding, 1, groups)
    theirs = F.conv2d(x, weight, None, stride, padding, 1, groups)
    torch.testing.assert_close(ours, theirs)
    back = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [x, weight], back)
    torch.testing.assert_close(torch.autograd.grad(ours, [x, weight], back), expected)

    with torch.no_grad():
        recorded, way_back = recorded_conv_products(x, weight, stride, padding, 1, groups)
        (of_x,), (of_weight,) = way_back(back, [True], [True], False)
        (through,), (unwanted,) = way_back(back, [True], [False], True)
    torch.testing.assert_close(recorded, theirs)
    torch.testing.assert_close((of_x, of_weight), expected)
    torch.testing.assert_close(through, torch.where(x > 0, expected[0], 0))
    assert unwanted is None and way_back(back, [False], [True], False)[0] == [None]
