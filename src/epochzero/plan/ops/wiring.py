"""Ops without parameters: inputs, sums and products, skips and cut edges, concatenation and slices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.plan.ops.base import Jet, Op, Wiring, product, spatial
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Input(Op):
    """An input of the network."""

    size: Shape

    wiring = "input"

    def shape(self, *inputs: Shape) -> Shape:
        return self.size


@dataclass(frozen=True, slots=True)
class Add(Op):
    """The sum of its inputs."""

    wiring = "sum"
    linear = True
    channelwise = True
    drawn_as = "+"

    def shape(self, *inputs: Shape) -> Shape:
        if len(set(inputs)) != 1:
            raise ValueError(f"cannot add maps of different shapes {inputs}")
        return inputs[0]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        total = x[0]
        for term in x[1:]:
            total = total + term
        return total

    def expression(self, *names: str) -> str:
        return " + ".join(names)


@dataclass(frozen=True, slots=True)
class Multiply(Op):
    """The product of two maps; the second may be a gate (C, 1, 1), one factor for each channel of the first."""

    channelwise = True
    drawn_as = "×"

    def shape(self, *inputs: Shape) -> Shape:
        first, gate = inputs
        if gate not in (first, (*first[:1], 1, 1)) or len(gate) != len(first):
            raise ValueError(f"cannot multiply a map of shape {first} by one of shape {gate}")
        return first

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] * x[1]

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return product(x[0], x[1], torch.mul)

    def expression(self, *names: str) -> str:
        return " * ".join(names)


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """Its inputs concatenated along an axis of one sample: 0 for channels or tokens, -1 for the features of tokens."""

    axis: int = 0

    linear = True

    @property
    def wiring(self) -> Wiring:  # type: ignore[override]
        return "join" if self.axis == 0 else ""

    def shape(self, *inputs: Shape) -> Shape:
        first = inputs[0]
        if not -len(first) <= self.axis < len(first):
            raise ValueError(f"{self} needs inputs that have that axis and got {first}")
        at = self.axis % len(first)
        if len({(len(shape), shape[:at], shape[at + 1 :]) for shape in inputs}) != 1:
            raise ValueError(f"cannot join maps of shapes {inputs} along axis {at}")
        return (*first[:at], sum(shape[at] for shape in inputs), *first[at + 1 :])

    @property
    def _dim(self) -> int:
        return self.axis + 1 if self.axis >= 0 else self.axis

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.cat(x, self._dim)

    def expression(self, *names: str) -> str:
        return f"torch.cat([{', '.join(names)}], {self._dim})"


@dataclass(frozen=True, slots=True)
class Narrow(Op):
    """The first `size` channels (of an image), tokens or features: those of the first axis."""

    size: int

    wiring = "join"
    linear = True
    drawn_as = "first {op.size}"
    printed_as = "{0}[:, :{op.size}]"

    def shape(self, *inputs: Shape) -> Shape:
        if not inputs[0] or not 0 < self.size <= inputs[0][0]:
            raise ValueError(f"cannot keep {self.size} channels of an input of shape {inputs[0]}")
        return (self.size, *inputs[0][1:])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0][:, : self.size]


@dataclass(frozen=True, slots=True)
class Pick(Op):
    """One entry along the first axis, e.g. a tile or a token; the axis is removed."""

    index: int

    linear = True
    drawn_as = "no. {op.index}"
    printed_as = "{0}[:, {op.index}]"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) < 2 or not 0 <= self.index < inputs[0][0]:
            raise ValueError(f"an input of shape {inputs[0]} has no entry {self.index} along its first axis")
        return inputs[0][1:]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0][:, self.index]


@dataclass(frozen=True, slots=True)
class Tiles(Op):
    """An image cut into `grid` x `grid` tiles, row by row: (C, H, W) becomes (grid^2, C, H/grid, W/grid)."""

    grid: int

    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        c, h, w = spatial(self, inputs[0])
        if h % self.grid or w % self.grid:
            raise ValueError(f"an image of {h}×{w} cannot be cut into {self.grid}×{self.grid} equal tiles")
        return self.grid**2, c, h // self.grid, w // self.grid

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        rows = torch.stack(x[0].chunk(self.grid, 2), 1)  # [B, grid, C, h, W]
        return torch.stack(rows.chunk(self.grid, 4), 2).flatten(1, 2)

    def expression(self, *names: str) -> str:
        rows = f"torch.stack({names[0]}.chunk({self.grid}, 2), 1)"
        return f"torch.stack({rows}.chunk({self.grid}, 4), 2).flatten(1, 2)"


@dataclass(frozen=True, slots=True)
class Shift(Op):
    """The image shifted by one pixel up and to the left, with zeros where it ends.

    A 1×1 convolution of stride 2 of this sees what one of the image misses (FactorizedReduce). For even sizes that
    is the same as cutting off the first row and column; odd sizes work too.
    """

    linear = True
    channelwise = True
    printed_as = "nn.functional.pad({0}, (-1, 1, -1, 1))"

    def shape(self, *inputs: Shape) -> Shape:
        return spatial(self, inputs[0])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return F.pad(x[0], (-1, 1, -1, 1))


@dataclass(frozen=True, slots=True)
class Flatten(Op):
    """All numbers of a sample as a vector."""

    linear = True
    printed_as = "{0}.flatten(1)"

    def shape(self, *inputs: Shape) -> Shape:
        return (math.prod(inputs[0]),)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].flatten(1)


@dataclass(frozen=True, slots=True)
class Identity(Op):
    """A skip connection."""

    kind = "identity"
    channelwise = True
    linear = True
    drawn_as = "skip"
    module = "nn.Identity()"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0]


@dataclass(frozen=True, slots=True)
class Zero(Op):
    """A cut edge: constant zeros, of the input's shape or, for images, of another width or stride."""

    channels: int | None = None
    stride: int = 1

    kind = "zero"
    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        if self.channels is None and self.stride == 1:
            return inputs[0]
        c, h, w = spatial(self, inputs[0])
        return self.channels or c, -(-h // self.stride), -(-w // self.stride)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if self.channels is None and self.stride == 1:
            return torch.zeros_like(x[0])
        b, *size = x[0].shape
        return x[0].new_zeros(b, *self.shape(tuple(size)))

    def expression(self, *names: str) -> str:
        x = names[0]
        thinned = f", ::{self.stride}, ::{self.stride}" if self.stride > 1 else ""
        if self.channels is not None:
            return f"torch.zeros_like({x}[:, :1{thinned}].expand(-1, {self.channels}, -1, -1))"
        return f"torch.zeros_like({x}[:, :{thinned}])" if thinned else f"torch.zeros_like({x})"
