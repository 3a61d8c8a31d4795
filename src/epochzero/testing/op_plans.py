"""Random inputs and weights for an op, and random small plans around it: what `epochzero.testing.ops` checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import Tanh
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.wiring import Add, Flatten
from epochzero.types import Shape

SAMPLES = 4
CLASSES, WIDTH = 3, 5
"""of the plans around the op: their logits, and the features that everything in them starts from"""


@dataclass(frozen=True)
class Case:
    """An op with random inputs and weights, in double precision."""

    op: Op
    shapes: tuple[Shape, ...]
    """of what is fed, which is the op's own input where nothing feeds it"""
    feed: tuple[Op | None, ...]
    given: tuple[Shape, ...]
    """the shapes of the op's inputs"""
    x: tuple[Tensor, ...]
    w: tuple[Tensor, ...]
    seed: int

    @staticmethod
    def of(op: Op, shapes: Sequence[Shape], feed: Sequence[Op | None], seed: int) -> Case:
        feed = tuple(feed) or (None,) * len(shapes)
        given = tuple(shape if by is None else by.shape(shape) for shape, by in zip(shapes, feed, strict=True))
        rng = torch.Generator().manual_seed(seed)
        raw = [2 * noise(rng, SAMPLES, *shape) for shape in shapes]
        x = tuple(one if by is None else by.run((one,), ()) for one, by in zip(raw, feed, strict=True))
        w = tuple(
            noise(rng, *param.shape) if param.trainable else noise(rng, *param.shape).abs()
            for param in op.params(*given).values()
        )
        return Case(op, tuple(shapes), feed, given, x, w, seed)

    def run(self, x: Sequence[Tensor] | None = None, w: Sequence[Tensor] | None = None) -> Tensor:
        """The op's output; an AssertionError where it raises."""
        x, w = tuple(self.x if x is None else x), tuple(self.w if w is None else w)
        try:
            return self.op.run(x, w)
        except Exception as error:
            shapes = f"inputs {_shapes(x)} and parameters {_shapes(w)}"
            raise AssertionError(
                f"{self.op} raises {type(error).__name__} when it runs on {shapes}: {error}"
            ) from error

    def moving(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The inputs with random velocities and accelerations; whole numbers stay where they are."""
        rng = torch.Generator().manual_seed(self.seed + 1)
        return [
            (x, noise(rng, *x.shape), noise(rng, *x.shape))
            if x.is_floating_point()
            else (x, torch.zeros_like(x), torch.zeros_like(x))
            for x in self.x
        ]


def noise(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors) or "none"


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference, in units of the largest number."""
    if not one.numel():
        return 0.0
    one, other = one.detach(), other.detach()
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-300)
    return float((one - other).abs().max()) / scale


@dataclass(frozen=True, slots=True)
class _Reshaped(Op):
    """A row of features in another shape."""

    to: Shape

    linear = True
    printed_as = "{0}.reshape(-1, *{op.to})"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1 or inputs[0][0] != math.prod(self.to):
            raise ValueError(f"an input of shape {inputs[0]} cannot be laid out as {self.to}")
        return self.to

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].reshape(len(x[0]), *self.to)


def around(case: Case, rng: Random | None = None, *, blocks: bool = False, alone: bool = False) -> Plan:
    """A plan with the op in it: `alone`, with its own inputs; else from a row of features to logits, as it comes."""
    net = Builder()
    if alone:
        raw = [net.input(shape, f"in{i}") for i, shape in enumerate(case.shapes)]
        net.add(case.op, *_fed(net, raw, case.feed), name="op")
        return net.plan()
    assert rng is not None
    x = net.input((WIDTH,))
    for name, part in (("before", _before(rng)), ("middle", _middle(case, rng)), ("after", _after(case))):
        x = net.inline(part, x, name=name) if blocks else _laid(net, part, x, name)
    return net.plan()


def _laid(net: Builder, part: Plan, x: int, name: str) -> int:
    """The nodes of a part, one by one; returns the last."""
    place: list[int] = []
    for node in part.nodes:
        place.append(
            net.add(node.op, *(place[i] for i in node.inputs), name=f"{name}_{node.name}") if node.inputs else x
        )
    return place[-1]


def _before(rng: Random) -> Plan:
    """Some layers, or none: networks of a population are of unequal depth."""
    net = Builder()
    x = net.input((WIDTH,))
    for i in range(rng.randrange(1, 4)):
        x = net.add(Tanh(), net.add(Linear(WIDTH), x, name=f"linear{i}"), name=f"tanh{i}")
    return net.plan()


def _middle(case: Case, rng: Random) -> Plan:
    """The op once or twice, side by side or one after the other where shapes allow; all in a row at the end."""
    net = Builder()
    x = net.input((WIDTH,))
    out = case.op.shape(*case.given)
    y = _applied(net, case, x, "first")
    choice = rng.randrange(3)
    if choice == 1:
        y = net.add(Add(), y, _applied(net, case, x, "second"), name="sum")
    elif choice == 2 and case.given == (out,) and not any(case.feed):
        y = net.add(case.op, y, name="again")
    net.add(Flatten(), y, name="flat")
    return net.plan()


def _after(case: Case) -> Plan:
    net = Builder()
    net.add(Linear(CLASSES), net.input((math.prod(case.op.shape(*case.given)),)), name="classifier")
    return net.plan()


def _applied(net: Builder, case: Case, x: int, name: str) -> int:
    """The op on inputs of the right shapes, each from a linear layer of its own."""
    raw = []
    for i, shape in enumerate(case.shapes):
        wide = net.add(Linear(math.prod(shape)), x, name=f"{name}.wide{i}")
        raw.append(net.add(_Reshaped(shape), wide, name=f"{name}.laid{i}"))
    return net.add(case.op, *_fed(net, raw, case.feed, f"{name}."), name=f"{name}.op")


def _fed(net: Builder, raw: Sequence[int], feed: Sequence[Op | None], prefix: str = "") -> list[int]:
    pairs = enumerate(zip(raw, feed, strict=True))
    return [x if by is None else net.add(by, x, name=f"{prefix}fed{i}") for i, (x, by) in pairs]
