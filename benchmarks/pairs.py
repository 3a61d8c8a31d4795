"""Pairs of small networks: which one trains better, by `auto` and by counting FLOPs.

    python benchmarks/pairs.py cifar10.npz --markdown docs/pairs.md
    python benchmarks/pairs.py cifar10.npz --families resnet,kernel --epochs 8 --images 2000

Each family varies one or two things. Its networks are ranked untrained on a batch of the images, then trained alike:
AdamW with a one-cycle schedule, images shifted and mirrored. A pair counts if the accuracies on 2,000 other images
differ by more than two standard errors; a tie of scores is half right.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez

Family = Mapping[str, Callable[[], nn.Module]]
Images = tuple[Tensor, Tensor, Tensor, Tensor]
"""to train with and their labels, to test with and their labels"""


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels), conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Patches(nn.Module):
    """A small transformer on patches of 8x8."""

    def __init__(self, width: int, depth: int, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 8, 8)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).mT + self.place  # [B, 16, width]
        return self.head(self.layers(tokens).mean(1))  # type: ignore[no-any-return]


def conv(
    a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] = nn.ReLU, norm: bool = True
) -> nn.Sequential:
    parts = [nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups), *([nn.BatchNorm2d(b)] if norm else []), act()]
    return nn.Sequential(*parts)


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


def resnet(width: int, depth: int) -> nn.Module:
    stages: list[nn.Module] = [conv(3, width)]
    for stage in range(3):
        channels = width << stage
        stages += [conv(channels // 2, channels, stride=2)] if stage else []
        stages += [Residual(channels) for _ in range(depth)]
    return nn.Sequential(*stages, *head(4 * width))


def plain(
    width: int = 12, depth: int = 1, kernel: int = 3, act: type[nn.Module] = nn.ReLU, norm: bool = True, groups: int = 1
) -> nn.Module:
    layers = []
    for stage in range(3):
        channels, before = width << stage, width << stage >> 1
        layers.append(conv(before if stage else 3, channels, kernel, 2 if stage else 1, act=act, norm=norm))
        layers += [conv(channels, channels, kernel, groups=groups, act=act, norm=norm) for _ in range(depth)]
    return nn.Sequential(*layers, *head(4 * width))


def separable(width: int, kernel: int) -> nn.Module:
    layers = [conv(3, width)]
    for stage in range(3):
        a, b = width << stage >> bool(stage), width << stage
        layers += [conv(a, a, kernel, 2 if stage else 1, groups=a), conv(a, b, 1)]
    return nn.Sequential(*layers, *head(4 * width))


def early(stride: int) -> nn.Module:
    """The same layers at a coarser resolution."""
    return nn.Sequential(conv(3, 16, stride=stride), conv(16, 32, stride=2), conv(32, 64, stride=2), *head(64))


def mixer(width: int, depth: int) -> nn.Module:
    layers = [conv(3, width, 4, 4)]
    for _ in range(depth):
        layers += [conv(width, width, 5, groups=width), conv(width, width, 1)]
    return nn.Sequential(*layers, *head(width))


def family(make: Callable[..., nn.Module], *settings: Mapping[str, Any]) -> Family:
    """The networks of these settings, by their text."""
    return {
        ", ".join(f"{k} {getattr(v, '__name__', v)}" for k, v in one.items()): partial(make, **one) for one in settings
    }


def grid(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


SIZES = ((4, 1), (4, 3), (8, 1), (8, 2), (16, 1), (16, 3))
FAMILIES: dict[str, Family] = {
    "resnet": family(resnet, *({"width": width, "depth": depth} for width, depth in SIZES)),
    "depth": family(plain, *grid(depth=[0, 1, 2, 4])),
    "width": family(plain, *grid(width=[4, 8, 16, 24])),
    "kernel": family(plain, *grid(kernel=[1, 3, 5])),
    "activation": family(plain, *grid(act=[nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Identity])),
    "norm": family(plain, *grid(norm=[True, False], depth=[1, 3])),
    "groups": family(plain, *grid(groups=[1, 3, 12])),
    "separable": family(separable, *({"width": w, "kernel": k} for w, k in ((8, 3), (16, 3), (16, 5), (32, 3)))),
    "resolution": family(early, *grid(stride=[1, 2, 4])),
    "attention": family(Patches, *grid(width=[16, 48], depth=[1, 4])),
    "mixer": family(mixer, *grid(width=[16, 48], depth=[2, 6])),
}
"""eleven families, by the names of their networks"""


def images(path: Path, count: int) -> Images:
    """Returns training and test images, normalised, and their labels."""
    with np.load(path, allow_pickle=False) as file:
        x, y = file["x_train"][:count], file["y_train"][:count]
        tested, answers = file["x_test"][:2000], file["y_test"][:2000]
    a, b = (torch.from_numpy(np.ascontiguousarray(part)).permute(0, 3, 1, 2).float() / 255 for part in (x, tested))
    mean, std = a.mean((0, 2, 3), keepdim=True), a.std((0, 2, 3), keepdim=True)
    return (a - mean) / std, torch.from_numpy(y).long(), (b - mean) / std, torch.from_numpy(answers).long()


def accuracy(make: Callable[[], nn.Module], data: Images, epochs: int, seed: int) -> float:
    torch.manual_seed(seed)
    net, (x, y, tested, answers) = make(), data
    optimiser = torch.optim.AdamW(net.parameters(), weight_decay=0.01)
    steps = epochs * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.005, steps)
    net.train()
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(64)[: len(x) // 64]:  # type: ignore[no-untyped-call]
            dx, dy = (int(n) for n in torch.randint(-3, 4, (2,)))
            batch = torch.roll(x[part], (dy, dx), (2, 3))
            batch = batch.flip(3) if torch.rand(()) < 0.5 else batch
            optimiser.zero_grad()
            F.cross_entropy(net(batch), y[part]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        given = torch.cat([net(some).argmax(1) for some in tested.split(500)])  # type: ignore[no-untyped-call]
    return float((given == answers).float().mean())


def right(values: list[float], truth: list[float], count: int) -> tuple[float, int]:
    """Returns the number of pairs that the values order rightly, and of the pairs that differ."""
    good, pairs = 0.0, 0
    for i, j in combinations(range(len(truth)), 2):
        error = sum(p * (1 - p) / count for p in (truth[i], truth[j])) ** 0.5
        if abs(truth[i] - truth[j]) > 2 * error:
            pairs += 1
            same = (values[i] - values[j]) * (truth[i] - truth[j])
            good += 1.0 if same > 0 else 0.5 if same == 0 else 0.0
    return good, pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", dest="count", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each network")
    parser.add_argument("--kept", type=Path, help="a JSON file of accuracies, to resume")
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    data = images(asked.images, asked.count)
    kept = json.loads(asked.kept.read_text()) if asked.kept and asked.kept.exists() else {}
    rows, sums = [], np.zeros(3)
    for name in asked.families.split(","):
        nets = FAMILIES[name]
        by_name = {row.name: row for row in ez.rank(dict(nets), data=(data[0][:64], data[1][:64]), seeds=3)}
        truth = []
        for text, make in nets.items():
            keys = [f"{name}/{text}/{asked.epochs}/{asked.count}/{seed}" for seed in range(asked.seeds)]
            for seed, key in enumerate(keys):
                if key not in kept:
                    kept[key] = accuracy(make, data, asked.epochs, seed)
                    print(key, f"{kept[key]:.4f}", flush=True)
                    if asked.kept:
                        asked.kept.write_text(json.dumps(kept, indent=1))
            truth.append(float(np.mean([kept[key] for key in keys])))
        tested = asked.seeds * len(data[2])
        ours, pairs = right([by_name[text].merit for text in nets], truth, tested)
        flops, _ = right([float(by_name[text].flops or 0) for text in nets], truth, tested)
        sums += (pairs, ours, flops)
        order = "; ".join(f"{text}: {100 * t:.1f}" for t, text in sorted(zip(truth, nets, strict=True), reverse=True))
        rows.append(f"| {name} | {len(nets)} | {pairs} | {ours:g} | {flops:g} | {order} |")
        print(rows[-1], flush=True)
    rows.append(f"| all | | {sums[0]:g} | {sums[1]:g} | {sums[2]:g} | |")
    about = (__doc__ or "").strip().split("\n\n")
    head = [
        "| family | networks | pairs that differ | auto right | FLOPs right | accuracy, percent |",
        "|---" * 6 + "|",
    ]
    settings = f"{asked.count:,} images, {asked.epochs} epochs, {asked.seeds} training(s) of each network."
    text = "\n".join(["# Pairs of small networks", "", about[0], "", about[2], "", settings, "", *head, *rows, ""])
    print(text)
    if asked.markdown:
        asked.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
