"""Weighted sums, for supernets: the weights are constants of the op, or an input of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from epochzero.plan.ops.base import Op
from epochzero.plan.ops.wiring import Add
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class WeightedSum(Op):
    """The sum of its inputs, each times a number."""

    weights: tuple[float, ...]

    linear = True
    channelwise = True
    drawn_as = "Σ"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != len(self.weights):
            raise ValueError(f"{len(self.weights)} weights do not fit {len(inputs)} maps")
        return Add().shape(*inputs)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        total = x[0] * self.weights[0]
        for term, weight in zip(x[1:], self.weights[1:], strict=True):
            total = total + term * weight
        return total

    def expression(self, *names: str) -> str:
        return " + ".join(f"{weight} * {name}" for weight, name in zip(self.weights, names, strict=True))


@dataclass(frozen=True, slots=True)
class Mixture(Op):
    """The sum of its inputs from the second on, each times one number of the first, which has no batch axis."""

    drawn_as = "Σ"

    def shape(self, *inputs: Shape) -> Shape:
        weights, *terms = inputs
        if weights != (len(terms),):
            raise ValueError(f"weights of shape {weights} do not fit {len(terms)} maps")
        return Add().shape(*terms)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        weights, *terms = x  # [n], n maps
        total = terms[0] * weights[0]
        for i, term in enumerate(terms[1:], start=1):
            total = total + term * weights[i]
        return total

    def expression(self, *names: str) -> str:
        weights, *terms = names
        return " + ".join(f"{weights}[{i}] * {term}" for i, term in enumerate(terms))


@dataclass(frozen=True, slots=True)
class Scaled(Op):
    """The second input times one number of the first, which has no batch axis."""

    index: int

    drawn_as = "×"
    printed_as = "{1} * {0}[{op.index}]"

    def shape(self, *inputs: Shape) -> Shape:
        weights, x = inputs
        if len(weights) != 1 or not 0 <= self.index < weights[0]:
            raise ValueError(f"weights of shape {weights} have no number {self.index}")
        return x

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[1] * x[0][self.index]


@dataclass(frozen=True, slots=True)
class Selected(Mixture):
    """A mixture whose weights are one for the terms that are used, and zero for the others."""

    used: tuple[int, ...]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        first, *others = (x[1 + i] for i in self.used)
        for term in others:
            first = first + term
        return first

    def expression(self, *names: str) -> str:
        return " + ".join(names[1 + i] for i in self.used)
