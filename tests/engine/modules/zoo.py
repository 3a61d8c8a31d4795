"""Sixty small modules, for tests and benchmarks: twelve kinds of networks, as people write them, in five sizes each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, SIDE, WORDS, TIME = 10, 16, 24, 12
SIZES = ((8, 1), (8, 2), (16, 1), (16, 3), (24, 2))
"""width and depth"""


class Residual(nn.Module):
    """Adds what the layers compute to their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


class Tokens(nn.Module):
    """A map [B, C, H, W] as tokens [B, HW, C]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    """The mean of the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def conv(c_in: int, c_out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out), nn.ReLU())


def classifier(width: int, *body: nn.Module) -> nn.Module:
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def over_tokens(width: int, *body: nn.Module) -> nn.Module:
    """Patches of four pixels become tokens."""
    patches = (nn.Conv2d(3, width, 4, 4), Tokens())
    return nn.Sequential(*patches, *body, nn.LayerNorm(width), Mean(), nn.Linear(width, CLASSES))


def convolutional(width: int, depth: int) -> nn.Module:
    layers = (nn.Sequential(conv(width, width), nn.MaxPool2d(2)) for _ in range(depth))
    return classifier(width, conv(3, width), *layers)


def residual(width: int, depth: int) -> nn.Module:
    def block() -> nn.Module:
        inner = Residual(conv(width, width), nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        return nn.Sequential(inner, nn.ReLU(inplace=True))

    return classifier(width, conv(3, width, stride=2), *(block() for _ in range(depth)))


class Joining(nn.Module):
    """Joins its input and its layer's output, as a DenseNet."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


def dense(width: int, depth: int) -> nn.Module:
    layers = [Joining(width + i * 4, 4) for i in range(depth + 1)]
    return classifier(width + 4 * len(layers), conv(3, width, stride=2), *layers)


def inverted_bottleneck(width: int, depth: int) -> nn.Module:
    def block() -> nn.Module:
        wide = 4 * width
        layers = (nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6())
        deep = (nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6())
        return Residual(*layers, *deep, nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width))

    return classifier(width, conv(3, width, stride=2), *(block() for _ in range(depth)))


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate from the means of all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))
        return x * gate


def squeeze_excite(width: int, depth: int) -> nn.Module:
    blocks = (Residual(conv(width, width), SqueezeExcite(width)) for _ in range(depth))
    return classifier(width, conv(3, width, stride=2), *blocks)


class ChannelsLastNorm(nn.LayerNorm):
    """A layer norm over the channels of a map."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(width: int, depth: int) -> nn.Module:
    def block() -> nn.Module:
        mlp = (nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
        return Residual(nn.Conv2d(width, width, 7, padding=3, groups=width), ChannelsLastNorm(width), *mlp)

    return classifier(width, nn.Conv2d(3, width, 2, 2), *(block() for _ in range(depth)))


def mlp(width: int, ratio: int = 2) -> nn.Module:
    layers = (nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))
    return Residual(nn.LayerNorm(width), *layers)


def vit(width: int, depth: int) -> nn.Module:
    layers = (
        nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        for _ in range(depth)
    )
    return over_tokens(width, *layers)


class Attention(nn.Module):
    """Attention in windows of tokens, shifted by half a window if asked, or causal along the whole row."""

    def __init__(self, width: int, heads: int = 2, window: int = 0, shift: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.window, self.shift, self.causal = heads, window, shift, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        whole = x.shape
        x = x.roll(-(self.window // 2), 1) if self.shift else x
        x = x.reshape(-1, self.window, whole[-1]) if self.window else x
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # [B, heads, T, D]
        x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = self.out(x).reshape(whole)
        return x.roll(self.window // 2, 1) if self.shift else x


def swin(width: int, depth: int) -> nn.Module:
    def block(shift: bool) -> nn.Module:
        return nn.Sequential(Residual(nn.LayerNorm(width), Attention(width, window=4, shift=shift)), mlp(width))

    return over_tokens(width, *(block(bool(i % 2)) for i in range(depth)))


class Across(nn.Module):
    """Runs layers over the tokens of each channel."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.transpose(1, 2)).transpose(1, 2)
        return out


def mixer(width: int, depth: int) -> nn.Module:
    count = (SIDE // 4) ** 2

    def block() -> nn.Module:
        across = Across(nn.Linear(count, 8), nn.GELU(), nn.Linear(8, count))
        return nn.Sequential(Residual(nn.LayerNorm(width), across), mlp(width))

    return over_tokens(width, *(block() for _ in range(depth)))


class UNet(nn.Module):
    """Down and up again with joins; the classes are those of its map's mean."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        pairs = list(pairwise(widths))
        self.stem = conv(3, width)
        self.down = nn.ModuleList(conv(a, b, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.join = nn.ModuleList(conv(2 * a, a) for a, _ in reversed(pairs))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.stem(x)]
        for down in self.down:
            maps.append(down(maps[-1]))
        x = maps.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), maps.pop()], 1))
        out: Tensor = self.head(x)
        return out.mean((2, 3))


class Recurrent(nn.Module):
    """Rows of pixels as steps of an LSTM, or of a GRU of one layer."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        kind = nn.LSTM if depth > 1 else nn.GRU
        self.layers = kind(3 * SIDE, width, depth, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(x.transpose(1, 2).flatten(2))[0].mean(1))
        return logits


class LanguageModel(nn.Module):
    """A decoder of causal attention and gated MLPs, with one table for words in and out: logits [B, T, words]."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(TIME, width))
        self.layers = nn.Sequential(
            *(
                nn.Sequential(Residual(nn.RMSNorm(width), Attention(width, causal=True)), Residual(Gated(width)))
                for _ in range(depth)
            )
        )
        self.norm = nn.RMSNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places[: ids.shape[1]]  # [B, T, E]
        return F.linear(self.norm(self.layers(x)), self.words.weight)


class Gated(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "convolutional": convolutional,
    "residual": residual,
    "dense": dense,
    "inverted bottleneck": inverted_bottleneck,
    "squeeze-excite": squeeze_excite,
    "ConvNeXt": convnext,
    "ViT": vit,
    "Swin": swin,
    "mixer": mixer,
    "U-Net": UNet,
    "recurrent": Recurrent,
    "causal LM": LanguageModel,
}
