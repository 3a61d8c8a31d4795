"""Images as rows of tokens, and the learnt tokens of transformers.

Dosovitskiy et al. An image is worth 16x16 words. ICLR 2021. arXiv:2010.11929
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.base import Op, Param, spatial, tokens
from epochzero.types import Shape


@dataclass(frozen=True, slots=True)
class ToTokens(Op):
    """Each pixel of an image as a token, row by row: (C, H, W) becomes (H*W, C)."""

    linear = True
    drawn_as = "to tokens"
    printed_as = "{0}.flatten(2).transpose(1, 2)"

    def shape(self, *inputs: Shape) -> Shape:
        c, h, w = spatial(self, inputs[0])
        return h * w, c

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0].flatten(2).transpose(1, 2)


class FirstToken(nn.Module):
    """Prepends a learnt token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(x), 1, -1), x], 1)


@dataclass(frozen=True, slots=True)
class ClassToken(Op):
    """A learnt token before the others: (N, E) becomes (1 + N, E)."""

    linear = True
    prints = (FirstToken,)
    module = "FirstToken({0[1]})"
    drawn_as = "class token"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[0])
        return 1 + n, e

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"token": Param(inputs[0][-1:], "table")}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return torch.cat([w[0].expand(len(x[0]), 1, -1), x[0]], 1)

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.zeros_like(w[0]),)


class PositionTable(nn.Module):
    """Adds a learnt vector to each token, one for each position."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(count, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


@dataclass(frozen=True, slots=True)
class PositionEmbedding(Op):
    """Adds a learnt vector to each token, one for each position."""

    linear = True
    prints = (PositionTable,)
    module = "PositionTable({0[0]}, {0[1]})"
    drawn_as = "positions"

    def shape(self, *inputs: Shape) -> Shape:
        return tokens(self, inputs[0])

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"table": Param(inputs[0], "table")}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] + w[0]

    def unbiased(self, w: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.zeros_like(w[0]),)
