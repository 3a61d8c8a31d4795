r"""Causal self-attention with rotary positions and grouped keys, from the output of one linear layer.

For each head, with q, k, v of shape (N, D), R_i the rotation of each pair (m, m + D/2) by i / 10000^(2m/D), and the
heads sharing the keys and values of their group:

    a_ij = softmax_j (R_i q_i) . (R_j k_j) / sqrt(D)        over j with i - window < j <= i
    y_i  = sum_j a_ij v_j

Multiply-accumulates are those of whole rows, as they run here.

Vaswani et al. Attention is all you need. NeurIPS 2017. arXiv:1706.03762
Su et al. RoFormer: enhanced transformer with rotary position embedding. 2021. arXiv:2104.09864
Ainslie et al. GQA: training generalized multi-query transformer models from multi-head checkpoints. arXiv:2305.13245
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.attention import join_heads, softmax_jet
from epochzero.plan.ops.base import Jet, Op, Param, product, tokens
from epochzero.types import Shape


def rotated(x: Tensor) -> Tensor:
    """Turns each pair of features by an angle that grows with the position."""
    count, width = x.shape[-2:]
    pairs = torch.arange(width // 2, dtype=x.dtype, device=x.device)
    places = torch.arange(count, dtype=x.dtype, device=x.device)
    angle = places[:, None] * 10000.0 ** (-2 * pairs / width)  # [N, D/2]
    first, second = x.chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def split_groups(qkv: Tensor, heads: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rotated queries, scaled by 1/sqrt(D), and for each head its group's rotated keys and values."""
    parts = qkv.reshape(qkv.shape[0], qkv.shape[1], heads + 2 * keys, -1).transpose(1, 2)  # [B, heads + 2 keys, N, D]
    q, k, v = torch.split(parts, [heads, keys, keys], 1)
    times = heads // keys
    k, v = rotated(k).repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    return rotated(q) * q.shape[3] ** -0.5, k, v


def before(likeness: Tensor, window: int) -> Tensor:
    """Keeps the likeness of each token to itself and to the last ones before it."""
    count = likeness.shape[-1]
    seen = torch.ones(count, count, dtype=torch.bool, device=likeness.device).tril().triu(1 - window)
    return likeness.masked_fill(~seen, float("-inf"))


def attend_causally(qkv: Tensor, heads: int, keys: int, window: int) -> Tensor:
    """Attention of each token to itself and to the last ones before it."""
    q, k, v = split_groups(qkv, heads, keys)
    return join_heads(before(q @ k.transpose(-2, -1), window).softmax(-1) @ v)


class CausalSelfAttention(nn.Module):
    """Causal attention with rotary positions, from concatenated queries, keys and values."""

    def __init__(self, heads: int, keys: int, window: int) -> None:
        super().__init__()
        self.heads, self.keys, self.window = heads, keys, window

    def forward(self, qkv: Tensor) -> Tensor:
        return attend_causally(qkv, self.heads, self.keys, self.window)


@dataclass(frozen=True, slots=True)
class CausalAttention(Op):
    """Causal self-attention: (N, (heads + 2 keys) D) becomes (N, heads D)."""

    heads: int
    keys: int
    """heads of keys and values, which divide the heads"""
    window: int
    """tokens that each token sees, itself among them"""

    kind = "attention"
    drawn_as = "causal attention"
    prints = (join_heads, rotated, split_groups, before, attend_causally, CausalSelfAttention)
    module = "CausalSelfAttention({op.heads}, {op.keys}, {op.window})"

    def shape(self, *inputs: Shape) -> Shape:
        n, e = tokens(self, inputs[0])
        width = e // (self.heads + 2 * self.keys)
        if self.heads % self.keys or e % (self.heads + 2 * self.keys) or width % 2:
            raise ValueError(f"{e} features are no queries of {self.heads} heads with {self.keys} keys and values")
        return n, self.heads * width

    def macs(self, *inputs: Shape) -> int:
        n, e = self.shape(*inputs)
        return 2 * n * n * e

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return attend_causally(x[0], self.heads, self.keys, self.window)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        q, k, v = zip(*(split_groups(s, self.heads, self.keys) for s in x[0]), strict=True)
        likeness = product(q, k, lambda a, b: a @ b.mT)
        weight = softmax_jet((before(likeness[0], self.window), *likeness[1:]))
        value, velocity, acceleration = product(weight, v, torch.matmul)
        return join_heads(value), join_heads(velocity), join_heads(acceleration)


def words_of(ids: Tensor, table: Tensor) -> Tensor:
    """Returns the row of each id; any number is some id."""
    return nn.functional.embedding(ids.detach().round().remainder(len(table)).long(), table)


class WordTable(nn.Module):
    """A learnt vector for each word."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(count, width) * 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        return words_of(ids, self.table)


@dataclass(frozen=True, slots=True)
class Words(Op):
    """The vectors of a row of ids: (places,) becomes (places, width).

    In place of ids it takes the table of `epochzero.data.packed` with additions, so that proxies can move the vectors.
    """

    places: int
    rows: int
    """words that there are"""
    width: int

    looks_up = True
    prints = (words_of, WordTable)
    module = "WordTable({op.rows}, {op.width})"

    def shape(self, *inputs: Shape) -> Shape:
        if inputs[0] != (self.places,):
            raise ValueError(f"{self} needs a row of {self.places} ids and got {inputs[0]}")
        return self.places, self.width

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"table": Param((self.rows, self.width), "table")}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        looked_up = words_of(x[0][:, : self.places], w[0])
        if x[0].shape[1] == self.places:
            return looked_up
        keep, added = x[0][:, self.places, None, None].detach(), x[0][:, self.places + 1 :]
        return looked_up * keep + added.reshape(-1, self.places, self.width)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value = self.run((x[0][0],), w)
        if x[0][0].shape[1] == self.places:
            return value, torch.zeros_like(value), torch.zeros_like(value)
        velocity, acceleration = (s[:, self.places + 1 :].reshape(value.shape) for s in x[0][1:])
        return value, velocity, acceleration
