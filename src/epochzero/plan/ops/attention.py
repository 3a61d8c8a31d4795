r"""Self-attention from the output of one linear layer: queries, keys and values concatenated.

For each head, with q, k, v of shape (N, D) and rows i, j of it:

    a_ij = softmax_j (q_i . k_j + q_i . K_ij) / sqrt(D)
    y_i  = sum_j a_ij (v_j + V_ij)

Without relative positions K and V are zero. With them, the tokens after the first form a square grid, and K_ij is the
sum of two rows of learnt tables, one for the number of rows that j is below i and one for the number of columns that it
is to the right, both cut off at a largest distance. Row 0 of each table is for pairs with the class token, which comes
first. V_ij has tables of its own. All heads share them.

Vaswani et al. Attention is all you need. NeurIPS 2017. arXiv:1706.03762
Shaw, Uszkoreit, Vaswani. Self-attention with relative position representations. NAACL 2018. arXiv:1803.02155
Chen, Peng, Fu, Ling. AutoFormer: searching transformers for visual recognition. ICCV 2021. arXiv:2107.00651
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.base import Jet, Op, Param, product, tokens
from epochzero.types import Shape


def split_heads(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, scaled by 1/sqrt(D), keys and values of each head."""
    q, k, v = qkv.reshape(*qkv.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)  # [B, heads, N, D]
    return q * q.shape[3] ** -0.5, k, v


def join_heads(y: Tensor) -> Tensor:
    """Concatenates the outputs of the heads."""
    return y.transpose(1, 2).flatten(2)  # [B, N, heads * D]


def relative_vectors(count: int, farthest: int, vertical: Tensor, horizontal: Tensor) -> Tensor:
    """Returns the vector of each pair of tokens: the position of the second relative to the first.

    Tables are read for pairs of rows and of columns, not of tokens: the gradient of an index that names each of a few
    rows a thousand times is slow on a GPU.
    """
    side = int((count - 1) ** 0.5)
    places = torch.arange(side, device=vertical.device)
    away = (places - places[:, None]).clamp(-farthest, farthest) + farthest + 1  # [side, side]
    down, across = nn.functional.embedding(away, vertical), nn.functional.embedding(away, horizontal)
    grid = (down[:, None, :, None] + across[None, :, None]).flatten(2, 3).flatten(0, 1)  # [N - 1, N - 1, D]
    first = vertical[0] + horizontal[0]  # [D]
    wide = torch.cat([first.expand(count - 1, 1, -1), grid], 1)
    return torch.cat([first.expand(1, count, -1), wide])  # [N, N, D]


def attend(qkv: Tensor, heads: int) -> Tensor:
    """Attention of tokens to each other."""
    q, k, v = split_heads(qkv, heads)
    return join_heads((q @ k.transpose(-2, -1)).softmax(-1) @ v)


def attend_relatively(qkv: Tensor, heads: int, keys: Tensor, values: Tensor) -> Tensor:
    """Attention with a key and a value for each pair of tokens."""
    q, k, v = split_heads(qkv, heads)
    likeness = q @ k.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, keys)  # [B, heads, N, N]
    weight = likeness.softmax(-1)
    return join_heads(weight @ v + torch.einsum("bhij,ijd->bhid", weight, values))


class SelfAttention(nn.Module):
    """Attention of tokens to each other, from concatenated queries, keys and values."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, qkv: Tensor) -> Tensor:
        return attend(qkv, self.heads)


class RelativeSelfAttention(nn.Module):
    """Attention with learnt vectors for the position of one token relative to another."""

    def __init__(self, heads: int, width: int, farthest: int) -> None:
        super().__init__()
        self.heads, self.farthest = heads, farthest
        self.key_vertical = nn.Parameter(torch.randn(2 * farthest + 2, width) * 0.02)
        self.key_horizontal = nn.Parameter(torch.randn(2 * farthest + 2, width) * 0.02)
        self.value_vertical = nn.Parameter(torch.randn(2 * farthest + 2, width) * 0.02)
        self.value_horizontal = nn.Parameter(torch.randn(2 * farthest + 2, width) * 0.02)

    def forward(self, qkv: Tensor) -> Tensor:
        count = qkv.shape[1]
        keys = relative_vectors(count, self.farthest, self.key_vertical, self.key_horizontal)
        values = relative_vectors(count, self.farthest, self.value_vertical, self.value_horizontal)
        return attend_relatively(qkv, self.heads, keys, values)


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """Self-attention: (N, 3 heads D) becomes (N, heads D)."""

    heads: int

    kind = "attention"
    prints = (split_heads, join_heads, attend, SelfAttention)
    module = "SelfAttention({op.heads})"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[0])
        if e % (3 * self.heads):
            raise ValueError(f"{e} features are no queries, keys and values of {self.heads} heads")
        return n, e // 3

    def macs(self, *inputs: Shape) -> int:
        n, e = inputs[0]
        return 2 * n * n * (e // 3)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return attend(x[0], self.heads)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        q, k, v = zip(*(split_heads(s, self.heads) for s in x[0]), strict=True)
        weight = softmax_jet(product(q, k, lambda a, b: a @ b.mT))
        return _joined(product(weight, v, torch.matmul))


@dataclass(frozen=True, slots=True)
class RelativeAttention(Op):
    """Self-attention with relative positions: (N, 3 heads D) becomes (N, heads D), N = 1 + a square number."""

    heads: int
    farthest: int = 14
    """the distance beyond which positions are the same"""

    kind = "attention"
    prints = (split_heads, join_heads, attend_relatively, relative_vectors, RelativeSelfAttention)
    drawn_as = "relative attention"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = Attention(self.heads).shape(*inputs)
        if n < 2 or math.isqrt(n - 1) ** 2 != n - 1:
            raise ValueError(f"{self} needs a class token and a square grid of tokens, and {n} tokens are none")
        return n, e

    def params(self, *inputs: Shape) -> dict[str, Param]:
        table = Param((2 * self.farthest + 2, inputs[0][1] // (3 * self.heads)), "table")
        return dict.fromkeys(("key_vertical", "key_horizontal", "value_vertical", "value_horizontal"), table)

    def macs(self, *inputs: Shape) -> int:
        return 2 * Attention(self.heads).macs(*inputs)

    def _vectors(self, count: int, w: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        keys, values = (relative_vectors(count, self.farthest, *tables) for tables in (w[:2], w[2:]))
        return keys, values  # [N, N, D]

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return attend_relatively(x[0], self.heads, *self._vectors(x[0].shape[1], w))

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        q, k, v = zip(*(split_heads(s, self.heads) for s in x[0]), strict=True)
        keys, values = self._vectors(x[0][0].shape[1], w)
        relative = [torch.einsum("bhid,ijd->bhij", s, keys) for s in q]
        near = product(q, k, lambda a, b: a @ b.mT)
        weight = softmax_jet((near[0] + relative[0], near[1] + relative[1], near[2] + relative[2]))
        shifted = [torch.einsum("bhij,ijd->bhid", s, values) for s in weight]
        plain = product(weight, v, torch.matmul)
        return _joined((plain[0] + shifted[0], plain[1] + shifted[1], plain[2] + shifted[2]))

    def code(self, *inputs: Shape) -> str:
        return f"RelativeSelfAttention({self.heads}, {inputs[0][1] // (3 * self.heads)}, {self.farthest})"


def softmax_jet(x: Jet) -> Jet:
    """Softmax over the last axis: p' = p (x' - E x') and p'' = p ((x' - E x')^2 + x'' - E x'' - Var x')."""
    value, velocity, acceleration = x
    p = value.softmax(-1)
    speed = velocity - (p * velocity).sum(-1, keepdim=True)
    bend = speed * speed + acceleration
    return p, p * speed, p * (bend - (p * bend).sum(-1, keepdim=True))


def _joined(y: Jet) -> Jet:
    return join_heads(y[0]), join_heads(y[1]), join_heads(y[2])
