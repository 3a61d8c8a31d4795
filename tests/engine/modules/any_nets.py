"""Small networks of every family: residual, attention, recommender, recurrent, tied, several outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10
WORDS, TIME = 20, 6
TABLES, ROWS, DENSE = 3, 12, 5


class Block(nn.Module):
    """An inverted residual: pointwise, depthwise, pointwise, and `+=`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, 2 * width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(2 * width)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * width)
        self.narrow = nn.Conv2d(2 * width, width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.wide(x)))
        out = self.relu(self.norm2(self.depthwise(out)))
        out = self.norm3(self.narrow(out))
        out += x
        result: Tensor = self.relu(out)
        return result


def residual() -> nn.Module:
    """A small ResNet of depthwise blocks."""
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    return nn.Sequential(stem, Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


class ViT(nn.Module):
    """Patches, positions, torch's own encoder layers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 17, width))
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True, norm_first=True) for _ in range(2))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        logits: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return logits


class Recommender(nn.Module):
    """In the way of DLRM: numbers through a network, ids through tables, products of pairs, a network on top."""

    pairs: Tensor

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 8), nn.ReLU(), nn.Linear(8, width), nn.ReLU())
        self.tables = nn.ModuleList([nn.EmbeddingBag(ROWS, width, mode="sum") for _ in range(TABLES)])
        self.register_buffer("pairs", torch.triu_indices(TABLES + 1, TABLES + 1, 1))
        self.top = nn.Sequential(nn.Linear(width + 6, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom(dense)
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([x, *found], 1)  # [B, tables + 1, width]
        products = (vectors @ vectors.mT)[:, self.pairs[0], self.pairs[1]]
        logits: Tensor = self.top(torch.cat([x, products], 1))
        return logits


class Recurrent(nn.Module):
    """A classifier of words: embedding, LSTM or GRU, linear."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6)
        self.layers = kind(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.words(words))[0].mean(1))
        return logits


class Language(nn.Module):
    """One table for words in and words out; predicts the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.relu(self.mix(self.words(words).mean(1))))
        return logits


@dataclass
class Found:
    """An output in the way of language model libraries."""

    loss: Tensor | None
    logits: Tensor


class Wrapped(nn.Module):
    """A residual network that returns its logits deep inside something."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.net = residual()
        self.how = how

    def forward(self, x: Tensor) -> Any:
        logits = self.net(x)
        if self.how == "dataclass":
            return Found(None, logits)
        return {"features": x, "heads": ({"logits": logits}, logits.sum())}


class Attention(nn.Module):
    """`nn.MultiheadAttention` between positions, or from a few positions to all."""

    def __init__(self, crossed: bool, weights: bool = False, width: int = 8, **given: Any) -> None:
        super().__init__()
        self.crossed, self.weights = crossed, weights
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.attention = nn.MultiheadAttention(width, 2, **given)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)  # [B, T, E]
        query = x[:, :3] if self.crossed else x
        mixed = self.attention(query, x, x, need_weights=self.weights)[0]
        logits: Tensor = self.head(torch.relu(mixed).mean(1))
        return logits


class WrittenOut(nn.Module):
    """The same as calls of functions."""

    def __init__(self, other: Attention) -> None:
        super().__init__()
        self.crossed = other.crossed
        self.patches, self.head = other.patches, other.head
        inside = other.attention
        assert inside.in_proj_weight is not None and inside.in_proj_bias is not None
        self.inside, self.inside_bias = inside.in_proj_weight, inside.in_proj_bias
        self.outside, self.outside_bias = inside.out_proj.weight, inside.out_proj.bias

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)  # [B, T, E]
        if self.crossed:
            inputs = zip((x[:, :3], x, x), self.inside.chunk(3), self.inside_bias.chunk(3), strict=True)
            q, k, v = (F.linear(part, weight, bias) for part, weight, bias in inputs)
        else:
            q, k, v = F.linear(x, self.inside, self.inside_bias).chunk(3, -1)
        q, k, v = (part.reshape(*part.shape[:2], 2, -1).transpose(1, 2) for part in (q, k, v))  # [B, heads, T, E/2]
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        mixed = F.linear(mixed, self.outside, self.outside_bias)
        logits: Tensor = self.head(torch.relu(mixed).mean(1))
        return logits
