r"""Ops of networks on a table of features, besides linear layers.

    Turned              rows and features swapped, so that a linear layer mixes rows
    PairProducts        x_i . x_j for all i > j, of a vector and rows of the same width
    FactorMachine       (sum_i x_i)^2 - sum_i x_i^2, of rows x_i
    AsRows, Padded      a vector cut into rows; a vector with zeros after it
    FaintNorm           a layer norm whose scale starts small

Naumov et al. Deep learning recommendation model for personalization and recommendation systems. 2019. arXiv:1906.00091
Rendle. Factorization machines. ICDM 2010.
Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.base import Jet, Op, Param, product, tokens
from epochzero.plan.ops.norm import LayerNorm, standardised
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class Turned(Op):
    """Rows and features swapped: (N, E) becomes (E, N)."""

    linear = True
    printed_as = "{0}.mT"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[0])
        return e, n

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].mT


def lower_triangle(square: Tensor) -> Tensor:
    """Returns the entries below the diagonal, row by row."""
    row, column = torch.tril_indices(square.shape[1], square.shape[1], -1, device=square.device)
    return square[:, row, column]


def pair_products(vector: Tensor, rows: Tensor) -> Tensor:
    """Returns the products of all pairs of rows, with the vector as the first row."""
    x = torch.cat([vector[:, None], rows], 1)  # [B, 1 + N, E]
    return lower_triangle(torch.bmm(x, x.mT))  # [B, N (N + 1) / 2]


@dataclass(frozen=True, slots=True)
class PairProducts(Op):
    """The products of all pairs of a vector (E,) and rows (N, E): (N (N + 1) / 2,)."""

    prints = (lower_triangle, pair_products)
    drawn_as = "dot products"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[1])
        if inputs[0] != (e,):
            raise ValueError(f"a vector of shape {inputs[0]} does not match rows of shape {inputs[1]}")
        return (n * (n + 1) // 2,)

    def macs(self, *inputs: Shape) -> int:
        n, e = inputs[1]
        return (n + 1) ** 2 * e

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return pair_products(*x)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        y0, y1, y2 = (torch.cat([vector[:, None], rows], 1) for vector, rows in zip(*x, strict=True))
        value, velocity, acceleration = product((y0, y1, y2), (y0, y1, y2), lambda a, b: a @ b.mT)
        return lower_triangle(value), lower_triangle(velocity), lower_triangle(acceleration)

    def expression(self, *names: str) -> str:
        return f"pair_products({', '.join(names)})"


def factor_machine(rows: Tensor) -> Tensor:
    """Returns twice the sum of products of all pairs of rows, feature by feature, in linear time."""
    return rows.sum(1).square() - rows.square().sum(1)  # [B, E]


@dataclass(frozen=True, slots=True)
class FactorMachine(Op):
    """(sum of rows)^2 - sum of rows^2: (N, E) becomes (E,)."""

    prints = (factor_machine,)
    drawn_as = "FM"
    printed_as = "factor_machine({0})"

    def shape(self, *inputs: Shape) -> Shape:
        return (tokens(self, inputs[0])[1],)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return factor_machine(x[0])

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return product(x[0], x[0], lambda a, b: a.sum(1) * b.sum(1) - (a * b).sum(1))


@dataclass(frozen=True, slots=True)
class AsRows(Op):
    """A vector cut into rows: (count E,) becomes (count, E)."""

    count: int

    linear = True
    drawn_as = "{op.count} rows"
    printed_as = "{0}.unflatten(1, ({op.count}, -1))"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1 or inputs[0][0] % self.count:
            raise ValueError(f"an input of shape {inputs[0]} cannot be cut into {self.count} equal rows")
        return self.count, inputs[0][0] // self.count

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.unflatten(x[0], 1, (self.count, -1))


@dataclass(frozen=True, slots=True)
class Padded(Op):
    """A vector followed by zeros."""

    zeros: int

    linear = True
    drawn_as = "pad"
    printed_as = "nn.functional.pad({0}, (0, {op.zeros}))"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1:
            raise ValueError(f"{self} needs a vector and got an input of shape {inputs[0]}")
        return (inputs[0][0] + self.zeros,)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return nn.functional.pad(x[0], (0, self.zeros))


class FaintLayerNorm(nn.Module):
    """A layer norm over the last axis, its scale times a small number."""

    def __init__(self, features: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.scale * self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class FaintNorm(Op):
    """y = (x - mean) / sqrt(var + 1e-5) * scale * weight + bias over the last axis; the weight starts at 1."""

    scale: float

    kind = "norm"
    prints = (FaintLayerNorm,)
    drawn_as = "layer norm"

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return LayerNorm().params(*inputs)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return nn.functional.layer_norm(x[0], x[0].shape[-1:], self.scale * w[0], w[1])

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        y0, y1, y2 = standardised(x[0], [-1], 1e-5)
        weight = self.scale * w[0]
        return y0 * weight + w[1], y1 * weight, y2 * weight

    def code(self, *inputs: Shape) -> str:
        return f"FaintLayerNorm({inputs[0][-1]}, {self.scale})"
