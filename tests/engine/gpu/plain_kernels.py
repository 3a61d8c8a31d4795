"""The kernels of an arena in plain torch: slow, obvious, and what the GPU's are compared with.

`epochzero.engine.gpu.arena` says what each of them does. It needs no pytest: a bare GPU image can run it.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from epochzero.engine.gpu.arena import Moments, Source, SourcePair, TensorPair, Terms, Window


def taken(place: Source, slots: Tensor) -> Tensor:
    """[M, B, H, W, C] these maps, one after the other."""
    arena, outside = place
    if outside is None:
        return arena[slots]
    networks = max(1, -int(slots.min())) if len(slots) else 1
    own = outside if len(outside) > 1 else outside.expand(networks, *outside.shape[1:])
    both = torch.cat([arena, own])
    return both[torch.where(slots < 0, len(arena) - 1 - slots, slots)]


def combine(out: Tensor, place: Source, terms: Terms, coefficients: Tensor | None) -> None:
    """Writes the sums; `coefficients` [R, 2, C] has the scales and shifts."""
    maps = taken(place, terms.slots)  # [T, B, H, W, C]
    if coefficients is not None:
        scale, shift = coefficients[terms.rows.clamp(min=0)][:, :, None, None, None].unbind(1)  # [T, 1, 1, 1, C]
        maps = torch.where((terms.rows < 0).view(-1, 1, 1, 1, 1), maps, maps * scale + shift)
    owners = torch.repeat_interleave(torch.arange(len(out), device=out.device), terms.starts.diff())
    out.zero_().index_add_(0, owners, maps)


def convolve(
    out: Tensor,
    place: Source,
    slots: Tensor,
    weight: Tensor,
    which: Tensor,
    window: Window,
    relu: bool,
    moments: bool,
) -> Moments | None:
    """Writes the convolutions of these maps with those of the weights [W * Co, Ci, k, k] that are theirs."""
    x = taken(place, slots)
    own = _own(weight, which, out.shape[-1])
    joint = F.conv2d(_to_joint(x.relu() if relu else x), own, None, *window[1:], len(x))
    out.copy_(_from_joint(joint, len(x)))
    return _of_channels(out) if moments else None


def convolve_back(
    out: Tensor, gradient: Tensor, weight: Tensor, which: Tensor, window: Window, on: Source | None, slots: Tensor
) -> None:
    """Writes the gradients of what was read, 0 where `on`, if it is given, is not positive."""
    count, own = len(out), _own(weight, which, gradient.shape[-1])
    shape = _to_joint(out).shape
    joint = conv2d_input(shape, own, _to_joint(gradient), *window[1:], groups=count)  # type: ignore[no-untyped-call]
    found = _from_joint(joint, count)
    out.copy_(found if on is None else torch.where(taken(on, slots) > 0, found, 0))


def correlate(place: Source, slots: Tensor, relu: bool, gradient: Tensor, window: Window) -> Tensor:
    """[M, Co, Ci, k, k] the gradients of the maps' weights, from those of the results."""
    x = taken(place, slots)
    count, outputs, kernel = len(x), gradient.shape[-1], window[0]
    shape = (count * outputs, x.shape[-1], kernel, kernel)
    read = _to_joint(x.relu() if relu else x)
    found: Tensor = conv2d_weight(read, shape, _to_joint(gradient), *window[1:], groups=count)  # type: ignore[no-untyped-call]
    return found.view(count, outputs, *shape[1:])


def convolve_jvp(
    out: Tensor, pair: SourcePair, slots: Tensor, weights: TensorPair, which: Tensor, window: Window, relu: bool
) -> None:
    """Writes the velocities of convolutions; weights come with theirs."""
    x, v = (taken(place, slots) for place in pair)
    (read, moved), count = (x.relu(), v * (x > 0)) if relu else (x, v), len(x)
    own, along = (_own(weight, which, out.shape[-1]) for weight in weights)
    joint = F.conv2d(_to_joint(moved), own, None, *window[1:], count)
    out.copy_(_from_joint(joint + F.conv2d(_to_joint(read), along, None, *window[1:], count), count))


def convolve_back_jvp(
    out: Tensor,
    gradients: TensorPair,
    weights: TensorPair,
    which: Tensor,
    window: Window,
    on: Source | None,
    slots: Tensor,
) -> None:
    """Writes the velocities of the gradients of what convolutions read."""
    other = torch.empty_like(out)
    convolve_back(other, gradients[0], weights[1], which, window, on, slots)
    convolve_back(out, gradients[1], weights[0], which, window, on, slots)
    out.add_(other)


def correlate_jvp(pair: SourcePair, slots: Tensor, relu: bool, gradients: TensorPair, window: Window) -> Tensor:
    """[M, Co, Ci, k, k] the velocities of the gradients of weights."""
    x, v = (taken(place, slots) for place in pair)
    moved = Source(v * (x > 0) if relu else v)
    every = torch.arange(len(v), device=v.device)
    return correlate(pair[0], slots, relu, gradients[1], window) + correlate(moved, every, False, gradients[0], window)


def norm_back_jvp(
    out: TensorPair,
    arena: Tensor,
    own: Tensor,
    velocities: Tensor,
    pair: SourcePair,
    slots: Tensor,
    statistics: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    which: Tensor,
) -> None:
    """Writes the gradients of what batch norms were given, and their velocities.

    For the velocity u of what is given and g of what arrives, means over a channel, a = mean(u xh), c = mean(g xh):

        w r (g' - mean(g') - xh mean(g' xh))
        - w r^2 (c (u - mean(u)) + a (g - mean(g)) + (mean(u g) - mean(u) mean(g) - 3 a c) xh)
    """
    norm_back(out[0], arena, own, pair[0], slots, statistics, rows, weight, which)
    norm_back(out[1], arena, own, pair[1], slots, statistics, rows, weight, which)
    g, u = taken(pair[0], slots), velocities[rows]
    mean, rstd = (value[:, None, None, None] for value in statistics[rows].unbind(1))  # [M, 1, 1, 1, C]
    xh = (arena[own] - mean) * rstd
    slope = rstd if weight is None else rstd * weight.view(-1, g.shape[-1])[which].view_as(rstd)
    low_u, low_g, a, c, both = (
        value.mean((1, 2, 3), keepdim=True) for value in (u, g, u * xh, g * xh, u * g)
    )  # each [M, 1, 1, 1, C]
    bend = c * (u - low_u) + a * (g - low_g) + (both - low_u * low_g - 3 * a * c) * xh
    out[1].sub_(slope * rstd * bend)


def _own(weight: Tensor, which: Tensor, outputs: int) -> Tensor:
    """The weights of each map in turn."""
    return weight.view(-1, outputs, *weight.shape[1:])[which].flatten(0, 1)


def moments(place: Source, slots: Tensor) -> Moments:
    """Of the channels of these maps."""
    return _of_channels(taken(place, slots))


def _of_channels(maps: Tensor) -> Moments:
    """In one part."""
    values = maps.flatten(1, 3)  # [M, N, C]
    mean = values.mean(1)
    return Moments(torch.stack([mean, (values - mean[:, None]).square().sum(1)], 1)[:, None], values.shape[1])


def settle(
    coefficients: Tensor,
    statistics: Tensor,
    moments: Moments,
    pixels: int,
    weight: Tensor | None,
    bias: Tensor | None,
    which: Tensor,
    eps: float,
) -> None:
    """Writes scale and shift, and mean and 1 / deviation, both [M, 2, C]; weights and biases are [W * C]."""
    parts, tile = moments
    counts = (pixels - tile * torch.arange(parts.shape[1], device=parts.device)).clamp(max=tile).view(1, -1, 1)
    mean = (parts[:, :, 0] * counts).sum(1) / pixels  # [M, C]
    squares = (parts[:, :, 1] + counts * (parts[:, :, 0] - mean[:, None]).square()).sum(1)
    rstd = (squares / pixels + eps).rsqrt()
    scale = rstd if weight is None else rstd * weight.view(-1, rstd.shape[1])[which]
    shift = -mean * scale if bias is None else bias.view(-1, rstd.shape[1])[which] - mean * scale
    coefficients.copy_(torch.stack([scale, shift], 1))
    statistics.copy_(torch.stack([mean, rstd], 1))


def norm_back(
    out: Tensor,
    arena: Tensor,
    own: Tensor,
    place: Source,
    slots: Tensor,
    statistics: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    which: Tensor,
) -> tuple[Tensor, Tensor]:
    """Writes the gradients of what batch norms were given, their `own` maps of the arena, from those of what they gave.

    Gives the gradients of their weights and biases [M, C].
    """
    g = taken(place, slots)
    mean, rstd = (value[:, None, None, None] for value in statistics[rows].unbind(1))  # [M, 1, 1, 1, C]
    xh = (arena[own] - mean) * rstd
    low, along = g.mean((1, 2, 3), keepdim=True), (g * xh).mean((1, 2, 3), keepdim=True)
    slope = rstd if weight is None else rstd * weight.view(-1, g.shape[-1])[which].view_as(rstd)
    out.copy_((g - low - xh * along) * slope)
    pixels = out[0].numel() // out.shape[-1]
    return (along * pixels).flatten(1), (low * pixels).flatten(1)


def pool(out: Tensor, place: Source, slots: Tensor, window: Window, transposed: bool) -> None:
    """Writes the means; of the transpose, the gradients of what was read, from those of the means."""
    x = _to_joint(taken(place, slots))
    kernel, stride, padding, _ = window
    if not transposed:
        found = F.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)
    else:
        sizes = ([kernel] * 2, [stride] * 2, [padding] * 2)
        like = x.new_empty(_to_joint(out).shape)
        found = torch.ops.aten.avg_pool2d_backward(x, like, *sizes, False, False, None)
    out.copy_(_from_joint(found, len(out)))


def _to_joint(maps: Tensor) -> Tensor:
    """[M, B, H, W, C] as torch has it: [B, M * C, H, W], with strides in this order even for axes of length 1."""
    count, images, height, width, channels = maps.shape
    return maps.permute(1, 0, 4, 2, 3).reshape(-1).view(images, count * channels, height, width)


def _from_joint(joint: Tensor, count: int) -> Tensor:
    """And back."""
    return joint.unflatten(1, (count, -1)).permute(1, 0, 3, 4, 2)  # type: ignore[no-untyped-call,no-any-return]


PLAIN = SimpleNamespace(
    combine=combine,
    convolve=convolve,
    convolve_back=convolve_back,
    correlate=correlate,
    moments=moments,
    settle=settle,
    norm_back=norm_back,
    pool=pool,
    convolve_jvp=convolve_jvp,
    convolve_back_jvp=convolve_back_jvp,
    correlate_jvp=correlate_jvp,
    norm_back_jvp=norm_back_jvp,
)
