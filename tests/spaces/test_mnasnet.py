"""MnasNet's skeleton: sizes from Accel-NASBench's table, an eager network written by hand, and refusals."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.mnasnet import CHANNELS, STRIDES, Arch, Stage

SPACE = spaces["mnasnet"]
TABLE = Path(__file__).parents[3] / "shared" / "data" / "accelnb_mnasnet.csv.gz"
PUBLISHED = {
    "e4k5l2s0/e6k3l2s0/e1k3l3s0/e1k5l2s0/e1k5l2s0/e6k3l3s0/e6k3l3s0": 6_010_824,
    "e6k5l3s0/e1k3l2s1/e6k3l1s1/e1k3l2s0/e1k5l2s0/e4k3l1s0/e1k5l2s1": 2_165_680,
    "e6k3l1s0/e4k3l3s0/e4k3l2s0/e6k5l3s0/e6k3l2s0/e1k5l1s0/e1k5l1s0": 2_311_480,
    "e6k5l3s0/e4k3l1s1/e1k5l1s0/e6k5l1s1/e4k5l1s0/e6k5l4s1/e6k5l2s1": 6_194_634,
}


@pytest.mark.parametrize(("text", "params"), PUBLISHED.items())
def test_published_parameters(text: str, params: int) -> None:
    assert SPACE.text(SPACE.parse(text)) == text
    assert SPACE.plan(SPACE.parse(text)).params == params


@pytest.mark.skipif(not TABLE.exists(), reason="accelnb_mnasnet.csv.gz is not at hand")
def test_every_network_of_the_table_is_counted_right() -> None:
    with gzip.open(TABLE, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [SPACE.plan(SPACE.parse(row["arch"])).params for row in rows] == [int(row["params"]) for row in rows]


class Layer(nn.Module):
    """One inverted bottleneck in plain PyTorch."""

    def __init__(self, stage: Stage, before: int, after: int, stride: int) -> None:
        super().__init__()
        e, k, _, s = stage
        hidden = before * e
        first = [nn.Conv2d(before, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU()] if e > 1 else []
        deep = nn.Conv2d(hidden, hidden, k, stride, k // 2, groups=hidden, bias=False)
        self.first = nn.Sequential(*first, deep, nn.BatchNorm2d(hidden), nn.SiLU())
        inner = [nn.Conv2d(hidden, before // 4, 1), nn.SiLU(), nn.Conv2d(before // 4, hidden, 1), nn.Sigmoid()]
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *inner) if s else None
        self.last = nn.Sequential(nn.Conv2d(hidden, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        y: Tensor = self.last(z if self.gate is None else z * self.gate(z))
        return y + x if y.shape == x.shape else y


def by_hand(arch: Arch, classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    before = 32
    for stage, channels, stride in zip(arch, CHANNELS, STRIDES, strict=True):
        for layer in range(stage.layers):
            layers.append(Layer(stage, before, channels, 1 if layer else stride))
            before = channels
    layers += [nn.Conv2d(before, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


@pytest.mark.parametrize("seed", range(3))
def test_it_computes_what_a_network_written_by_hand_computes(seed: int) -> None:
    """With the plan's weights in the order in which both were made; squeeze-excite's lie between the two others'."""
    arch = SPACE.sample(Random(seed))
    ours, theirs = SPACE.plan(arch, 7, (3, 32, 32)).module(), by_hand(arch, 7)
    weights = [(name, value) for name, value in ours.state_dict().items() if "num_batches" not in name]
    named = [(name, value) for name, value in theirs.state_dict().items() if "num_batches" not in name]
    assert [value.shape for _, value in weights] == [value.shape for _, value in named]
    theirs.load_state_dict({name: value for (name, _), (_, value) in zip(named, weights, strict=True)}, strict=False)
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(ours.double()(x.double()), theirs.double()(x.double()))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("e6k3l1s0", "7 stages joined by '/', not 1"),
        ("/".join(["e6k3l1s0"] * 6 + ["e6k3l4s0"]), r"cannot be 'e6k3l4s0'.* 1 to 3 layers"),
        ("/".join(["e2k3l1s0"] + ["e6k3l1s0"] * 6), r"cannot be 'e2k3l1s0'"),
    ],
)
def test_texts_of_other_networks_are_refused(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        SPACE.parse(text)


def test_every_stage_has_its_own_choices() -> None:
    assert SPACE.count() == 36**6 * 48
    assert len(SPACE.neighbours(SPACE.smallest())) == 6 * 35 + 47
