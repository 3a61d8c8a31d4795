"""Grouped convolutions and their derivatives of any order, with torch's in place of a GPU's kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from epochzero.engine.gpu import arena, fused

GEOMETRIES = [
    # stride, padding, dilation, groups
    (1, 1, 1, 2),
    (2, 1, 1, 3),
    (1, 2, 2, 1),
]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def convolve_joint(
    x: Tensor,
    weight: Tensor,
    size: tuple[int, int],
    maps: int,
    window: arena.Window,
    transposed: bool,
    on: Tensor | None,
) -> Tensor:
    if not transposed:
        return F.conv2d(x, weight, None, *window[1:], maps)
    shape = (len(x), maps * weight.shape[1], *size)
    out: Tensor = conv2d_input(shape, weight, x, *window[1:], maps)  # type: ignore[no-untyped-call]
    return out if on is None else torch.where(on > 0, out, 0)


def correlate_joint(x: Tensor, gradient: Tensor, shape: torch.Size, maps: int, window: arena.Window) -> Tensor:
    return conv2d_weight(x, shape, gradient, *window[1:], maps)  # type: ignore[no-untyped-call,no-any-return]


@pytest.fixture(autouse=True)
def kernels(plain_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    joint = SimpleNamespace(convolve_joint=convolve_joint, correlate_joint=correlate_joint)
    monkeypatch.setattr(arena, "kernels", lambda: joint)


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), GEOMETRIES)
def test_values_and_two_derivatives(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, weight = noise(2, groups * 2, 5, 4), noise(groups * 3, 2, 3, 3, seed=1)
    geometry = (stride, padding, dilation, groups)
    torch.testing.assert_close(fused.grouped_conv(x, weight, *geometry), F.conv2d(x, weight, None, *geometry))
    assert torch.autograd.gradcheck(lambda x, w: fused.grouped_conv(x, w, *geometry), (x, weight))
    assert torch.autograd.gradgradcheck(lambda x, w: fused.grouped_conv(x, w, *geometry), (x, weight))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_recorded_way_back(geometry: fused.Geometry) -> None:
    before, weight = noise(2, geometry[3] * 2, 5, 4), noise(geometry[3] * 3, 2, 3, 3, seed=1)
    right = F.conv2d(before.relu(), weight, None, *geometry)
    gradient = torch.ones_like(right)
    expected = torch.autograd.grad(right, [before, weight], gradient)
    with torch.no_grad():
        y, back = fused.recorded_conv(before.relu(), weight, geometry)
        of_x, of_weight = back(gradient, [True], [True], True)
        unwanted = back(gradient, [False], [False], False)
    torch.testing.assert_close(y, right)
    torch.testing.assert_close((of_x[0], of_weight[0]), expected)
    assert unwanted == ([None], [None])
