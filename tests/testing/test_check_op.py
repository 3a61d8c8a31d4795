"""`check_op` passes the least that an op can be, and names each promise that an op breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list, score_network, score_population
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.base import Back, Jet, Op, Param
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.wiring import (
    Flatten,
)
from epochzero.testing import check_op
from epochzero.types import Shape

# An op as CONTRIBUTING.md asks for it: shape, parameters, multiply-accumulates, run


@dataclass(frozen=True)
class Bent(Op):
    """y = sin(x W^T), which is not linear and has no jet."""

    out_features: int = 4

    def shape(self, *inputs: Shape) -> Shape:
        return (*inputs[0][:-1], self.out_features)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"weight": Param((self.out_features, inputs[0][-1]), "weight", inputs[0][-1], self.out_features)}

    def macs(self, *inputs: Shape) -> int:
        return inputs[0][0] * self.out_features

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.sin(x[0] @ w[0].mT)


def with_op(op: Op) -> Plan:
    net = Builder()
    x = net.add(Flatten(), net.input((3, 4, 4)), name="flat")
    net.add(Linear(3), net.add(op, net.add(Linear(6), x, name="wide"), name="op"), name="head")
    return net.plan()


def test_an_op_of_shape_parameters_cost_and_run_alone_passes() -> None:
    check_op(Bent(), (6,))


def test_an_op_without_derivatives_along_a_curve_costs_a_score_and_gives_the_reason() -> None:
    batch = data.pink((3, 4, 4), 3, size=4)
    asked = parse_list("dextr_opt,dextr,snip,curvature")
    why = "op Bent has no second derivative along a curve: it is not linear, and its class does not define `jet`"
    networks = [PlanNetwork(with_op(Bent(width))) for width in (2, 4)]
    together = [own.scores for own in score_population(networks, asked, batch, 0, "always")]
    for scores in (score_network(networks[0], asked, batch, 0).scores, *together):
        assert scores["snip"].ok
        assert (scores["curvature"].status, scores["curvature"].why) == ("failed", why)


# Ops that break one check each


class Wide(Bent):
    def shape(self, *inputs: Shape) -> Shape:
        return (self.out_features + 1,)


class Costly(Bent):
    def macs(self, *inputs: Shape) -> int:
        return 1


class Half(Bent):
    def macs(self, *inputs: Shape) -> int:
        return 0.5  # type: ignore[return-value]


class Mixing(Bent):
    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        y = super().run(x, w)
        return y - y.mean(0)


class InPlace(Bent):
    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return super().run((x[0].detach().add_(1),), w)


class Chancy(Bent):
    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return super().run(x, w) + torch.rand(())


class Forgetful(Bent):
    calls: int = 0

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        type(self).calls += 1
        return super().run(x, w) * type(self).calls


class Raising(Bent):
    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        raise IndexError("no such thing")


class Infinite(Bent):
    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return super().run(x, w) / 0


class Odd(Bent):
    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"the weight": super().params(*inputs)["weight"]}


class Undrawn(Bent):
    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"weight": Param((self.out_features, inputs[0][-1]), "weight")}


class Straight(Bent):
    linear = True


class Biased(Bent):
    linear = True

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] @ w[0].mT

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (2 * w[0],)


class Silent(Bent):
    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        raise NotImplementedError


class OtherValue(Bent):
    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        y, dy, ddy = (s @ w[0].mT for s in x[0])
        return y.cos(), y.cos() * dy, y.cos() * ddy - y.sin() * dy * dy


class OtherVelocity(Bent):
    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        y, dy, ddy = (s @ w[0].mT for s in x[0])
        return y.sin(), dy, y.cos() * ddy - y.sin() * dy * dy


class OtherBend(Bent):
    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        y, dy, ddy = (s @ w[0].mT for s in x[0])
        return y.sin(), y.cos() * dy, y.cos() * ddy


class OtherBack(Bent):
    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back]:
        def back(
            gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
        ) -> tuple[list[Tensor | None], list[Tensor | None]]:
            return [gradient @ w[0]], [gradient.mT @ x[0]]

        return self.run(x, w), back


class OtherRecorded(Bent):
    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back]:
        return 2 * self.run(x, w), lambda *_: ([], [])


class InOrderOfMemory(Bent):
    """On images: takes numbers as they lie in memory."""

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {}

    def macs(self, *inputs: Shape) -> int:
        return 0

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        scale = torch.arange(x[0].shape[1], dtype=x[0].dtype)
        if x[0].is_contiguous():
            return x[0] * scale[:, None, None]
        return x[0] * scale.flip(0)[:, None, None]


class Nameless(Bent):
    def label(self) -> str:
        return ""


class Sine(nn.Module):
    def __init__(self, features: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(x @ self.weight.mT)


class OtherCode(Bent):
    prints = (Sine,)

    def code(self, *inputs: Shape) -> str:
        return f"Sine({inputs[0][-1]}, {self.out_features})"


class OtherModule(Bent):
    def code(self, *inputs: Shape) -> str:
        return f"nn.Linear({inputs[0][-1]}, {self.out_features})"


class BrokenCode(Bent):
    def code(self, *inputs: Shape) -> str:
        return "nn.Lineal(1)"


class Overlapping(Bent):
    """Several networks at once, with the first one's weights."""

    def side_by_side(self, count: int, *inputs: Shape) -> Op:
        return FirstOnly(count, self.out_features)


@dataclass(frozen=True)
class FirstOnly(Op):
    count: int
    out_features: int

    def shape(self, *inputs: Shape) -> Shape:
        return (self.count * self.out_features,)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        width = inputs[0][0] // self.count
        return {"weight": Param((self.count * self.out_features, width), "weight", width)}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        each = x[0].reshape(len(x[0]), self.count, -1)
        return torch.sin(each @ w[0][: self.out_features].mT).flatten(1)


class WithoutRun(Bent):
    def side_by_side(self, count: int, *inputs: Shape) -> Op:
        return Raising(count * self.out_features)


@dataclass(frozen=True)
class Softmax(Op):
    """An activation that is not a function of each number separately."""

    kind = "activation"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.softmax(x[0], 1)


@dataclass(frozen=True)
class Leaky(Op):
    """An activation with a parameter."""

    kind = "activation"

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"slope": Param(inputs[0][:1], "table")}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.where(x[0] > 0, x[0], x[0] * w[0])


@pytest.mark.parametrize("op", [Softmax(), Leaky()], ids=str)
def test_activations_that_mix_features_or_have_parameters_pass(op: Op) -> None:
    for seed in range(3):
        check_op(op, (6,), seed=seed)


class Coupled(Bent):
    """Says that each output depends on one channel alone, and depends on all."""

    channelwise = True
    kind = "activation"

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {}

    def macs(self, *inputs: Shape) -> int:
        return 0

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.softmax(x[0], 1)


@dataclass
class Loose(Op):
    size: int = 3

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.relu(x[0])

    def __hash__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Unhashable(Op):
    sizes: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (Unhashable(), "cannot be hashed"),
        (Loose(), "lets 'size' be set: make it a frozen dataclass"),
        (Wide(), r"says \(5,\), and gives \(4,\) for each sample"),
        (Raising(), r"raises IndexError when it runs on inputs \[4, 6\] and parameters \[4, 6\]: no such thing"),
        (Infinite(), "gives numbers that are not finite"),
        (Odd(), "no parameter called 'the weight'"),
        (Undrawn(), "cannot be drawn by the scheme default .*: weights and biases need their fan_in"),
        (InPlace(), "changes its inputs or parameters"),
        (Chancy(), "moves torch's global random state"),
        (Forgetful(), "gives another output when it runs again"),
        (Costly(), "says 1 multiply-accumulates, and torch counts 24"),
        (Half(), "says 0.5 multiply-accumulates: a whole number"),
        (Mixing(), "mixes the samples of a batch, and `mixes_samples` is not set"),
        (Straight(), "says that it is linear in its inputs, and is not"),
        (Biased(), r"without its bias \(`unbiased`\) is another map"),
        (Silent(), "has no `jet` and does not say so"),
        (OtherValue(), "the value of `jet` of .* is not that of `run`"),
        (OtherVelocity(), "the first derivative of `jet`"),
        (OtherBend(), "the second derivative of `jet`"),
        (OtherBack(), "the recorded way back"),
        (OtherRecorded(), "another output when it is recorded"),
        (Nameless(), "has the label ''"),
        (OtherCode(), "the printed code of .* gives another output"),
        (OtherModule(), "the printed code of .* has the parameters"),
        (BrokenCode(), "the printed code of .* raises AttributeError"),
        (Overlapping(), "the .* of a network are others in a population than alone"),
        (WithoutRun(), "a population with .* raises IndexError"),
        (Coupled(), "the .* of a network are others in a population than alone"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Op) else "",
)
def test_a_broken_promise_is_named(op: Op, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_op(op, (6,))


def test_the_order_in_memory_does_not_matter() -> None:
    with pytest.raises(AssertionError, match="gives another output where channels lie last"):
        check_op(InOrderOfMemory(), (3, 4, 4))
