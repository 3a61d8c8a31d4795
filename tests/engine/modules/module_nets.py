"""Networks as people write them: residual and in place, grouped, functional, random, wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """The module with weights from a seed, norms included, and the global random state as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make()
        for name, tensor in module.named_parameters():
            if "norm" in name:
                nn.init.uniform_(tensor, 0.5, 1.5)
    return module


class Residual(nn.Module):
    """In-place ReLUs and `x += y`, in the way of torchvision's networks."""

    def __init__(self, in_place: bool = True) -> None:
        super().__init__()
        self.in_place = in_place
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=in_place)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm1(self.stem(x)))
        out = self.relu(self.norm2(self.conv1(x)))
        out = self.norm3(self.conv2(out))
        if self.in_place:
            out += x
        else:
            out = out + x
        out = self.relu(out)
        logits: Tensor = self.head(self.pool(out).flatten(1))
        return logits


class Separable(nn.Module):
    """Depthwise, pointwise and grouped convolutions, and another activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm1 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 12, 1)
        self.grouped = nn.Conv2d(12, 12, 3, padding=1, groups=3)
        self.norm2 = nn.BatchNorm2d(12)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.depthwise(self.stem(x))))
        x = F.relu(self.norm2(self.grouped(self.pointwise(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Modular(nn.Module):
    """Convolution, norm and ReLU as modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.AvgPool2d(2)
        self.flat = nn.Flatten()
        self.head = nn.Linear(8 * 4 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm1(self.conv1(x)))
        x = self.relu(self.norm2(self.conv2(x)))
        logits: Tensor = self.head(self.flat(self.pool(x)))
        return logits


class Functional(nn.Module):
    """The same network as bare parameters and calls of functions, none of them twice in the same style."""

    def __init__(self, other: Modular) -> None:
        super().__init__()
        names = dict(other.named_parameters())
        self.w1, self.b1 = names["conv1.weight"], names["conv1.bias"]
        self.scale1, self.shift1 = names["norm1.weight"], names["norm1.bias"]
        self.w2 = names["conv2.weight"]
        self.scale2, self.shift2 = names["norm2.weight"], names["norm2.bias"]
        self.w3, self.b3 = names["head.weight"], names["head.bias"]

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.w1, bias=self.b1, padding=1)
        x = F.batch_norm(x, None, None, weight=self.scale1, bias=self.shift1, training=True)
        x = F.relu(x, inplace=True)
        x = torch.conv2d(x, weight=self.w2, stride=2, padding=1)
        x = F.batch_norm(x, None, None, self.scale2, self.shift2, True)
        x = torch.relu_(x)
        x = F.avg_pool2d(x, 2)
        return F.linear(torch.flatten(x, 1), self.w3, self.b3)


def dropping() -> nn.Module:
    """With dropout in two forms, one of which does not listen to the mode."""

    class Dropping(Modular):
        def forward(self, x: Tensor) -> Tensor:
            x = F.dropout(self.relu(self.norm1(self.conv1(x))), 0.3, self.training)
            x = F.dropout2d(self.relu(self.norm2(self.conv2(x))), 0.2, True)
            logits: Tensor = self.head(self.flat(self.pool(x)))
            return logits

    return Dropping()


class Returns(Modular):
    """The modular network, with something made of its logits."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(super().forward(x))


class Raises(Modular):
    """Fails in the middle of its forward run."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(1)
        self.conv1(x)
        raise self.error


class Smooth(nn.Module):
    """No ReLU, no convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3 * 16 * 16, 8)
        self.two = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.two(torch.tanh(self.one(x.flatten(1))))
        return logits


class Weightless(nn.Module):
    """Nothing to train."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).flatten(1)[:, :CLASSES]


class Indexing(Modular):
    """A buffer of whole numbers, as relative positions are in attention."""

    order: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(CLASSES).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, self.order]
