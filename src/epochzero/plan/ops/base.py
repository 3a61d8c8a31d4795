"""The base class of ops: small frozen classes with their shape, parameters, cost and `run`.

Axes: B batch, C channels, H W space, F features, N tokens, E their width. Shapes are those of one sample, without
the batch axis.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from epochzero.types import Shape

Role = Literal["weight", "bias", "one", "zero", "table"]
"""The initialisation of a parameter: `weight` and `bias` follow the scheme, `one` and `zero` are constant, and `table`
(learnt tokens and positions) is small noise."""

Kind = Literal["conv", "linear", "norm", "activation", "pool", "attention", "identity", "zero", ""]
"""The kind of layer. Sums, concatenations and inputs are not layers: their kind is empty."""

Wiring = Literal["input", "sum", "join", "gather", ""]
"""The connection that an op without a kind makes. In a population, gathers of maps replace sums and joins."""

RoutineStep = Literal["wiring", "relu", "norm", "convolution", "pooling", ""]
"""The step that an op becomes in a routine on a GPU (`epochzero.engine.gpu.routine`); empty where there is none."""

Jet = tuple[Tensor, Tensor, Tensor]
"""A value with its first and second derivative along a curve: f(t), f'(t), f''(t)."""


class Joined(tuple[Tensor, Tensor, Tensor]):
    """A jet whose streams are the thirds of one tensor along the batch: linear ops run on all three at once."""

    whole: Tensor

    def __new__(cls, whole: Tensor) -> Joined:
        jet = super().__new__(cls, whole.chunk(3))
        jet.whole = whole
        return jet


def joined(jet: Jet) -> Tensor:
    """Returns value, velocity and acceleration concatenated along the batch, [3 B, ...]."""
    return jet.whole if isinstance(jet, Joined) else torch.cat(jet)


Pair = int | tuple[int, int]
"""One number for height and width, or one for each."""

Gradients = list[Tensor | None]


class Back(Protocol):
    """The backward pass of an op without autograd; it can run any number of times."""

    def __call__(
        self, gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        """Returns the gradients of the inputs and parameters that are asked for; None for others.

        `rectified`: the first input is the output of a ReLU, and its gradient has to go through that ReLU too. Only
        convolutions are asked for that.
        """


@dataclass(frozen=True, slots=True)
class Param:
    """The shape of one parameter or buffer, and its initialisation."""

    shape: Shape
    role: Role
    fan_in: int = 0
    fan_out: int = 0
    trainable: bool = True

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


class Op:
    """One operation of a plan. Subclasses are frozen dataclasses whose fields are the attributes.

    An op has to define `run`; everything else has a default. Class attributes are facts that the engine looks up.
    """

    kind: ClassVar[Kind] = ""
    linear: ClassVar[bool] = False
    """linear in its inputs, apart from an additive bias that `unbiased` leaves out"""
    channelwise: ClassVar[bool] = False
    """along the first axis, each output depends on its own input alone, and each parameter holds one number for it:
    the same op runs several networks joined along that axis"""
    wiring: ClassVar[Wiring] = ""
    rectifies: ClassVar[bool] = False
    """max(x, 0): a gradient goes back through it where its output is positive"""
    mixes_samples: ClassVar[bool] = False
    """in training, the output for a sample depends on the others of the batch"""
    looks_up: ClassVar[bool] = False
    """an embedding of ids, which also takes a table with additions to it (`epochzero.data.packed`)"""
    unique: ClassVar[bool] = False
    """made for one place in one plan: its shape and parameters are not cached"""
    drawn_as: ClassVar[str] = ""
    """its label in a drawing, with fields as `{op.field}`; its name by default"""
    printed_as: ClassVar[str] = ""
    """in printed code, the output as Python of the inputs `{0}`, `{1}`, ..., with fields as `{op.field}`"""
    module: ClassVar[str] = ""
    """in printed code, the constructor call of a module that does the same, for input shapes `{0}`, `{1}`, ..."""
    prints: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """functions and classes of our own that `code` and `expression` call: printed with stand-alone code, so they may
    use `torch`, `nn`, `Tensor` and each other, and nothing else"""

    def shape(self, *inputs: Shape) -> Shape:
        """Returns the output's shape for these input shapes; ValueError where they do not fit."""
        return inputs[0]

    def params(self, *inputs: Shape) -> dict[str, Param]:
        """Returns parameters and buffers by name, in the order in which `run` takes them."""
        return {}

    def macs(self, *inputs: Shape) -> int:
        """Returns the multiply-accumulates for one sample."""
        return 0

    @property
    def name(self) -> str:
        """The operation in small letters, e.g. `relu`, as proxies see it."""
        return type(self).__name__.lower()

    def routine_step(self, networks: int = 1) -> RoutineStep:
        """Returns the step that this op, of this many networks, becomes in a routine."""
        return "wiring" if self.wiring in ("input", "gather") or self.kind in ("identity", "zero") else ""

    def side_by_side(self, count: int, *inputs: Shape) -> Op | None:
        """Returns one op that does this for `count` networks, each with inputs of these shapes, or None."""
        return self if self.channelwise else None

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        """Returns the output for the inputs `x` and the parameters `w`."""
        raise NotImplementedError(f"op {type(self).__name__} does not define `run`")

    def layer_weights(self, params: Sequence[str]) -> Sequence[str]:
        """Of its parameters' names, in the op's order, the weights of the convolutions and linear layers that it runs.

        One for each layer: an op that runs the layers of several networks names several.
        """
        return params[:1] if self.kind in ("conv", "linear") else ()

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        """Returns the output and its backward pass, where the op has one that is faster than autograd's."""
        return None

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        """Returns the output's value and two derivatives from those of the inputs (second-order Taylor mode).

        An op that is neither linear nor defines this has none: proxies that need it say so instead of a score.
        """
        if not self.linear:
            raise NotImplementedError(
                f"op {type(self).__name__} has no second derivative along a curve: "
                "it is not linear, and its class does not define `jet`"
            )
        flat = self.unbiased(w)
        if len(flat) == len(w) and all(map(operator.is_, flat, w)):
            return Joined(self.run(tuple([joined(jet) for jet in x]), w))
        value = self.run(tuple([jet[0] for jet in x]), w)
        return value, self.run(tuple([jet[1] for jet in x]), flat), self.run(tuple([jet[2] for jet in x]), flat)

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Returns the parameters without the bias, with which a linear op acts on derivatives."""
        return w

    def label(self) -> str:
        """Returns a few characters for a drawing."""
        return self.drawn_as.format(op=self) or self.name

    def code(self, *inputs: Shape) -> str:
        """Returns the constructor call of `module`; empty where the op is an expression of its inputs."""
        return self.module.format(*inputs, op=self)

    def expression(self, *names: str) -> str:
        """Returns Python for the output where no module is needed, e.g. `a + b`."""
        if not self.printed_as:
            raise NotImplementedError
        return self.printed_as.format(*names, op=self)


F = TypeVar("F", bound=Callable[..., Any])


def signed(forward: F) -> F:
    """Stores the signature of an autograd function, which torch would compute, in 0.1 ms, at every call."""
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward


def options(*given: tuple[str, object, object]) -> str:
    """Returns the keyword arguments of a constructor call, each (name, value, default), that are not the default."""
    return "".join(f", {name}={value}" for name, value, default in given if value != default)


def spatial(op: Op, shape: Shape) -> tuple[int, int, int]:
    """Returns channels, height and width of an input that has to be an image."""
    if len(shape) != 3:
        raise ValueError(f"{op} needs an input of shape (C, H, W) and got {shape}")
    return shape[0], shape[1], shape[2]


def pair(value: Pair) -> tuple[int, int]:
    """Returns one number for height and one for width."""
    return (value, value) if isinstance(value, int) else value


def sides(kernel: Pair, stride: Pair) -> str:
    """Returns a window in a few characters: `3×3 /2`."""
    down = "" if pair(stride) == (1, 1) else f" /{max(pair(stride))}"
    return "×".join(map(str, pair(kernel))) + down


def windowed(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Returns the number of positions of a sliding window."""
    positions = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if positions < 1:
        raise ValueError(f"a window of {kernel} does not fit into a map of size {size} with padding {padding}")
    return positions


def tokens(op: Op, shape: Shape) -> tuple[int, int]:
    """Returns number and width of an input that has to be a row of tokens."""
    if len(shape) != 2:
        raise ValueError(f"{op} needs an input of shape (N, E) and got {shape}")
    return shape[0], shape[1]


def product(a: Jet, b: Jet, times: Callable[[Tensor, Tensor], Tensor]) -> Jet:
    """Returns the jet of a product that is linear in both a and b."""
    value = times(a[0], b[0])
    velocity = times(a[1], b[0]) + times(a[0], b[1])
    return value, velocity, times(a[2], b[0]) + 2 * times(a[1], b[1]) + times(a[0], b[2])
