"""Operations on maps of an arena, against torch's own and autograd, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.gpu.arena import Source, Terms
from tests.engine.gpu import plain_kernels as arena

CONVS = [
    # channels in and out, kernel, stride, padding, dilation
    (3, 4, 3, 1, 1, 1),
    (2, 5, 3, 2, 1, 1),
    (4, 2, 1, 1, 0, 1),
    (3, 3, 3, 1, 2, 2),
]
SLOTS = (2, -1, 0, -2)
WHICH = (1, 0, 3, 2)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def place(channels: int, seed: int = 0) -> Source:
    """Three maps in the arena and two outside."""
    return Source(noise(3, 2, 6, 5, channels, seed=seed), noise(2, 2, 6, 5, channels, seed=seed + 1))


def image(maps: Tensor) -> Tensor:
    """[B, H, W, C] as torch has it."""
    return maps.permute(0, 3, 1, 2)


def a_map(where: Source, slot: int) -> Tensor:
    assert where.outside is not None
    return where.arena[slot] if slot >= 0 else where.outside[-1 - slot]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("conv", CONVS)
def test_convolutions_and_their_gradients(conv: tuple[int, ...], relu: bool) -> None:
    inputs, outputs, kernel, stride, padding, dilation = conv
    given, weight = place(inputs), noise(4 * outputs, inputs, kernel, kernel, seed=5)
    window = (kernel, stride, padding, dilation)
    leaves = [image(a_map(given, slot)).clone().requires_grad_() for slot in SLOTS]
    own = [weight.view(4, outputs, inputs, kernel, kernel)[i].clone().requires_grad_() for i in WHICH]
    read = [x.relu() if relu else x for x in leaves]
    right = [F.conv2d(x, w, None, stride, padding, dilation) for x, w in zip(read, own, strict=True)]
    out = torch.empty(4, 2, *right[0].shape[2:], outputs, dtype=torch.float64)
    moments = arena.convolve(out, given, numbers(*SLOTS), weight, numbers(*WHICH), window, relu, True)
    assert moments is not None
    gradient = noise(*out.shape, seed=7)
    back = torch.empty(4, *given.arena.shape[1:], dtype=torch.float64)
    on = given if relu else None
    arena.convolve_back(back, gradient, weight, numbers(*WHICH), window, on, numbers(*SLOTS))
    of_weights = arena.correlate(given, numbers(*SLOTS), relu, gradient, window)
    for m in range(4):
        torch.testing.assert_close(image(out[m]), right[m].detach())
        of_x, of_w = torch.autograd.grad(right[m], [leaves[m], own[m]], image(gradient[m]))
        torch.testing.assert_close(image(back[m]), of_x)
        torch.testing.assert_close(of_weights[m], of_w)
        torch.testing.assert_close(moments.parts[m, 0, 0], right[m].detach().mean((0, 2, 3)))


@pytest.mark.parametrize("relu", [False, True])
def test_velocities_of_convolutions_are_their_derivatives_along_a_line(relu: bool) -> None:
    """By autograd, forward."""
    given, moving = place(3), place(3, seed=10)
    weights = noise(16, 3, 3, 3, seed=5), noise(16, 3, 3, 3, seed=6)
    gradients = noise(4, 2, 6, 5, 4, seed=7), noise(4, 2, 6, 5, 4, seed=8)
    slots, which, window = numbers(*SLOTS), numbers(*WHICH), (3, 1, 1, 1)

    def there(x: Tensor, outside: Tensor, w: Tensor) -> Tensor:
        both = torch.cat([x, outside])[[2, 3, 0, 4]]  # the same maps, counted on
        read = both.relu() if relu else both
        each = w.view(4, 4, 3, 3, 3)[list(WHICH)]
        return torch.stack(
            [F.conv2d(image(m), k, None, 1, 1).permute(0, 2, 3, 1) for m, k in zip(read, each, strict=True)]
        )

    def back(x: Tensor, outside: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        pull: Any = torch.func.vjp(lambda x, w: there(x, outside, w), x, w)[1]
        return pull(g)  # type: ignore[no-any-return]

    points, lines = (given.arena, given.outside), (moving.arena, moving.outside)
    right = torch.func.jvp(there, (*points, weights[0]), (*lines, weights[1]))[1]
    out = torch.empty_like(gradients[0])
    arena.convolve_jvp(out, (given, moving), slots, weights, which, window, relu)
    torch.testing.assert_close(out, right)
    of_x, of_w = torch.func.jvp(back, (*points, weights[0], gradients[0]), (*lines, weights[1], gradients[1]))[1]
    sent = torch.empty(4, 2, 6, 5, 3, dtype=torch.float64)
    arena.convolve_back_jvp(sent, gradients, weights, which, window, given if relu else None, slots)
    torch.testing.assert_close(sent[0], of_x[2])  # the maps of the arena that are read: the third and the first
    torch.testing.assert_close(sent[2], of_x[0])
    found = arena.correlate_jvp((given, moving), slots, relu, gradients, window)
    torch.testing.assert_close(found, of_w.view(4, 4, 3, 3, 3)[list(WHICH)])


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=1e-3)


def test_norms_there_and_back_and_along() -> None:
    maps, velocities = noise(3, 2, 4, 3, 5), noise(3, 2, 4, 3, 5, seed=1)
    weight, bias = noise(15, seed=2), noise(15, seed=3)
    which, slots, every = numbers(2, 0, 1), numbers(1, -1, 0), torch.arange(3)
    coefficients, statistics = torch.empty(3, 2, 5, dtype=torch.float64), torch.empty(3, 2, 5, dtype=torch.float64)
    arena.settle(coefficients, statistics, arena.moments(Source(maps), every), 24, weight, bias, which, 1e-3)
    sums = torch.empty(2, *maps.shape[1:], dtype=torch.float64)
    terms = Terms(numbers(0, 2, 3), numbers(2, 0, 1), numbers(2, -1, 1))
    arena.combine(sums, Source(maps), terms, coefficients)
    first = noise(2, 2, 4, 3, 5, seed=4), noise(1, 2, 4, 3, 5, seed=5)
    second = noise(2, 2, 4, 3, 5, seed=6), noise(1, 2, 4, 3, 5, seed=7)
    pair = Source(*first), Source(*second)
    out = torch.empty_like(maps)
    affine = arena.norm_back(out, maps, every, pair[0], slots, statistics, every, weight, which)
    both = torch.empty_like(maps), torch.empty_like(maps)
    arena.norm_back_jvp(both, maps, every, velocities, pair, slots, statistics, every, weight, which)
    for m, own in enumerate(which.tolist()):
        x = image(maps[m]).clone().requires_grad_()
        w, b = (value.view(3, 5)[own].clone().requires_grad_() for value in (weight, bias))
        y = normed(x, w, b)
        gradient, moved = (image(a_map(one, int(slots[m]))).clone() for one in pair)
        of_x, of_w, of_b = torch.autograd.grad(y, [x, w, b], gradient)
        torch.testing.assert_close(image(out[m]), of_x)
        torch.testing.assert_close(image(both[0][m]), of_x)
        torch.testing.assert_close((affine[0][m], affine[1][m]), (of_w, of_b))

        def back(x: Tensor, g: Tensor, w: Tensor = w.detach(), b: Tensor = b.detach()) -> Tensor:
            return torch.func.vjp(lambda x: spelled_out(x, w, b), x)[1](g)[0]  # type: ignore[no-any-return]

        along = torch.func.jvp(back, (x.detach(), gradient), (image(velocities[m]), moved))[1]
        torch.testing.assert_close(image(both[1][m]), along)
        if m == 1:
            torch.testing.assert_close(image(sums[1]), y.detach())
    torch.testing.assert_close(
        sums[0], maps[0] + normed(image(maps[2]), *(v.view(3, 5)[1] for v in (weight, bias))).permute(0, 2, 3, 1)
    )


def spelled_out(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Torch's own norm has wrong second derivatives forward."""
    away = x - x.mean((0, 2, 3), keepdim=True)
    deviation = (away.square().mean((0, 2, 3), keepdim=True) + 1e-3).sqrt()
    return away / deviation * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


@pytest.mark.parametrize("window", [(3, 1, 1, 1), (2, 2, 0, 1), (3, 2, 1, 1)])
def test_pooling_and_its_transpose(window: tuple[int, int, int, int]) -> None:
    given = Source(noise(3, 2, 6, 6, 3), noise(2, 2, 6, 6, 3, seed=1))
    leaves = [image(a_map(given, slot)).clone().requires_grad_() for slot in SLOTS]
    right = [F.avg_pool2d(x, *window[:3], count_include_pad=False) for x in leaves]
    out = torch.empty(4, 2, *right[0].shape[2:], 3, dtype=torch.float64)
    arena.pool(out, given, numbers(*SLOTS), window, False)
    gradient = Source(noise(4, *out.shape[1:], seed=4))
    back = torch.empty(4, 2, 6, 6, 3, dtype=torch.float64)
    arena.pool(back, gradient, numbers(3, 1, 2, 0), window, True)
    for m, at in enumerate((3, 1, 2, 0)):
        torch.testing.assert_close(image(out[m]), right[m].detach())
        (of_x,) = torch.autograd.grad(right[m], [leaves[m]], image(gradient.arena[at]))
        torch.testing.assert_close(image(back[m]), of_x)


def test_a_map_that_all_networks_have_in_common_is_kept_once() -> None:
    shared = Source(noise(1, 2, 3, 3, 2), noise(1, 2, 3, 3, 2, seed=1))
    out = torch.empty(3, 2, 3, 3, 2, dtype=torch.float64)
    arena.combine(out, shared, Terms(numbers(0, 1, 2, 3), numbers(-1, -3, 0), numbers(-1, -1, -1)), None)
    assert shared.outside is not None
    assert (
        torch.equal(out[0], shared.outside[0]) and torch.equal(out[1], out[0]) and torch.equal(out[2], shared.arena[0])
    )


@pytest.mark.parametrize("slots", [(2, 3), (1, 3), (0, 2), ()])
def test_maps_of_the_arena_and_one_map_that_all_networks_share(slots: tuple[int, ...]) -> None:
    shared = Source(noise(4, 2, 3, 3, 2), noise(1, 2, 3, 3, 2, seed=1))
    assert torch.equal(arena.taken(shared, numbers(*slots)), shared.arena[list(slots)])


def test_a_weight_s_gradient_from_one_sample() -> None:
    """Of a pixel, where torch would take the order of the channels for another."""
    given, gradient = Source(noise(2, 1, 1, 1, 3)), noise(2, 1, 1, 1, 4, seed=1)
    found = arena.correlate(given, numbers(0, 1), False, gradient, (3, 1, 1, 1))
    for m in range(2):
        weight = torch.zeros(4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
        out = F.conv2d(image(given.arena[m]), weight, None, 1, 1)
        torch.testing.assert_close(found[m], torch.autograd.grad(out, weight, image(gradient[m]))[0])
