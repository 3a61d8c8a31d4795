"""Convolution and average pooling of many networks at once.

On a GPU a library is slow at convolutions of several groups, and chooses its kernels anew, which takes milliseconds,
for every number of groups. So a convolution of several networks runs in one of four ways:

    ours       by our own kernels: for few channels, and for shapes that many networks have, since each is compiled
    each       one network after the other: where one is enough to keep the GPU busy
    products   as one product of matrices for each network, in one launch: where it is not
    library    by the library: depthwise convolutions, which it does channel by channel; everything on a CPU
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.gpu import fused
from epochzero.plan.ops.base import Back, Gradients, Op, pair, windowed
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.pool import AvgPool

Way = Literal["ours", "each", "products", "library"]
BUSY = 2**28
"""multiply-accumulates of one network's layer that keep a GPU busy for longer than their launch takes"""


@dataclass(frozen=True, slots=True)
class GroupedConv(Conv):
    """A convolution with one group of channels, or several, for each network."""

    networks: int = 1
    common: bool = True
    """true for a shape that at least half of the networks have"""

    @property
    def name(self) -> str:
        return "conv"

    def way(self, x: Tensor, w: tuple[Tensor, ...]) -> Way:
        """Returns how it runs on this input."""
        simple, inputs = len(w) == 1, w[0].shape[1]
        fits = simple and fused.fits(w[0], self.stride, self.padding)
        if fits and self.common and self.networks > 1 and fused.available(x):
            return "ours"
        if not slow_in_groups(x) or (inputs == 1 and self.groups > self.networks):
            return "library"
        work = len(x) * self.macs(tuple(x.shape[1:])) // self.networks
        return "products" if simple and self.networks > 1 and work < BUSY else "each"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        match self.way(x[0], w):
            case "ours":
                return fused.grouped_conv(x[0], w[0], self.stride, self.padding, self.dilation, self.groups)  # type: ignore[arg-type]
            case "each":
                return joined([convolved(self._of_one, *own) for own in self._each(x[0], w)])
            case "products":
                return conv_products(x[0], w[0], *self._window, self.groups)
        return Conv.run(self, x, w)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        match self.way(x[0], w):
            case "ours":
                return fused.recorded_conv(x[0], w[0], (self.stride, self.padding, self.dilation, self.groups))  # type: ignore[arg-type]
            case "each":
                return recorded_each([recorded_one(self._of_one, *own) for own in self._each(x[0], w)], len(w))
            case "products":
                return recorded_conv_products(x[0], w[0], *self._window, self.groups)
        return Conv.recorded(self, x, w)

    @property
    def _window(self) -> tuple[tuple[int, int], tuple[int, int], int]:
        return pair(self.stride), pair(self.padding), self.dilation

    @property
    def _of_one(self) -> Conv:
        """The convolution of one network."""
        own = replace(self, out_channels=self.out_channels // self.networks, groups=self.groups // self.networks)
        return Conv(*(getattr(own, field.name) for field in fields(Conv)))

    def _each(self, x: Tensor, w: tuple[Tensor, ...]) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
        """Returns the input and the weights of each network."""
        weights = zip(*(one.chunk(self.networks) for one in w), strict=True)
        return list(zip(x.chunk(self.networks, 1), weights, strict=True))


@dataclass(frozen=True, slots=True)
class GroupedAvgPool(AvgPool):
    """The mean over a sliding window of the maps of many networks."""

    @property
    def name(self) -> str:
        return "avgpool"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if self._fused(x[0]):
            return fused.box_mean(x[0], self.kernel, self.stride, self.padding)
        return AvgPool.run(self, x, w)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        if self._fused(x[0]):
            return fused.recorded_box(x[0], self.kernel, self.stride, self.padding)
        return AvgPool.recorded(self, x, w)

    def _fused(self, x: Tensor) -> bool:
        return not self.count_padding and fused.available(x)


def with_kernels(op: Op, networks: int, common: bool = True) -> Op:
    """Returns the same op of many networks, run by our own kernels where there are some."""
    values = [getattr(op, field.name) for field in fields(op)]  # type: ignore[arg-type]
    if type(op) is Conv:
        return GroupedConv(*[*values, networks, common])
    return GroupedAvgPool(*values) if type(op) is AvgPool else op


def slow_in_groups(x: Tensor) -> bool:
    """Returns True where the library is slow at convolutions of many groups: on a GPU."""
    return x.is_cuda


def is_pointwise(op: Conv) -> bool:
    """Returns True for a convolution that is a product of matrices as it is."""
    one = (1, 1)
    return pair(op.kernel) == one == pair(op.stride) and pair(op.padding) == (0, 0) and op.groups == 1


def convolved(op: Conv, x: Tensor, w: tuple[Tensor, ...]) -> Tensor:
    """Computes a convolution of one network, which may be a part of a larger input."""
    if not is_pointwise(op):
        return op.run((x,), w)
    weight = w[0].flatten(1).expand(len(x), -1, -1)  # [B, Co, Ci]
    out = torch.bmm(weight, x.flatten(2)).unflatten(2, x.shape[2:])  # type: ignore[no-untyped-call]
    return out + w[1].view(-1, 1, 1) if len(w) > 1 else out  # type: ignore[no-any-return]


def recorded_one(op: Conv, x: Tensor, w: tuple[Tensor, ...]) -> tuple[Tensor, Back]:
    """Returns the output of `convolved` and its backward pass."""
    if not is_pointwise(op):
        recorded = op.recorded((x,), w)
        assert recorded is not None
        return recorded

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        rows = gradient.flatten(2)  # [B, Co, H * W]
        of_x = of_weight = None
        if inputs[0]:
            of_x = torch.bmm(w[0].flatten(1).mT.expand(len(x), -1, -1), rows).view(x.shape)
            of_x = torch.ops.aten.threshold_backward(of_x, x, 0) if rectified else of_x
        if params[0]:
            of_weight = torch.bmm(rows, x.flatten(2).mT).sum(0).view_as(w[0])
        of_bias = [rows.sum((0, 2)) if params[1] else None] if len(w) > 1 else []
        return [of_x], [of_weight, *of_bias]

    return convolved(op, x, w), back


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns the maps of several networks side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)


def recorded_each(recorded: Sequence[tuple[Tensor, Back]], weights: int) -> tuple[Tensor, Back]:
    """Returns the outputs of several networks, side by side, and their backward pass."""

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        parts = gradient.chunk(len(recorded), 1)
        each = [own(part, inputs, params, rectified) for (_, own), part in zip(recorded, parts, strict=True)]
        of_x = joined([of_input for (of_input,), _ in each if of_input is not None]) if inputs[0] else None
        of_w = [[own for _, of_params in each if (own := of_params[k]) is not None] for k in range(weights)]
        return [of_x], [torch.cat(own) if own else None for own in of_w]

    return joined([output for output, _ in recorded]), back


def conv_products(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], dilation: int, groups: int
) -> Tensor:
    """Computes `F.conv2d` as one product of matrices for each group; can be differentiated any number of times."""
    columns, size = _columns(x, weight, stride, padding, dilation, groups)
    return _images(weight.view(groups, -1, columns.shape[1]) @ columns, len(x), size)  # [B, G * Co, Ho, Wo]


def recorded_conv_products(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], dilation: int, groups: int
) -> tuple[Tensor, Back]:
    """Returns the output of `conv_products` and its backward pass."""
    columns, size = _columns(x, weight, stride, padding, dilation, groups)
    factors = weight.view(groups, -1, columns.shape[1])  # [G, Co, Ci * k * k]
    whole = _is_whole(weight, stride, padding)

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        apart = _by_group(gradient.flatten(2), groups)  # [G, Co, B * Ho * Wo]
        of_x = of_weight = None
        if inputs[0]:
            of_windows = _images(factors.mT @ apart, len(x), size)  # [B, G * Ci * k * k, Ho, Wo]
            if not whole:
                of_windows = F.fold(of_windows.flatten(2), x.shape[2:], weight.shape[2:], dilation, padding, stride)
            of_x = torch.ops.aten.threshold_backward(of_windows, x, 0) if rectified else of_windows
        if params[0]:
            of_weight = (apart @ columns.mT).view_as(weight)
        return [of_x], [of_weight]

    return _images(factors @ columns, len(x), size), back


def _columns(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], dilation: int, groups: int
) -> tuple[Tensor, tuple[int, int]]:
    """Returns the windows of the input, [G, Ci * k * k, B * Ho * Wo], and the output's height and width."""
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)
    height, width = (windowed(*side, dilation) for side in sides)
    if _is_whole(weight, stride, padding):
        return _by_group(x.flatten(2), groups), (height, width)
    return _by_group(F.unfold(x, weight.shape[2:], dilation, padding, stride), groups), (height, width)


def _is_whole(weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Returns True for a 1 x 1 convolution without stride and padding."""
    return weight.shape[2:] == (1, 1) == stride and padding == (0, 0)


def _by_group(rows: Tensor, groups: int) -> Tensor:
    """Returns [B, G * R, N] as [G, R, B * N]."""
    each: Tensor = rows.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    return each.movedim(0, 2).flatten(2)


def _images(products: Tensor, images: int, size: tuple[int, int]) -> Tensor:
    """Returns [G, R, B * H * W] as [B, G * R, H, W]."""
    return products.view(*products.shape[:2], images, *size).movedim(2, 0).flatten(1, 2)
