"""The networks of ZenNAS's block strings: sizes of the released ones, ZenNAS's own counters, and what they compute."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor, nn

from epochzero.engine import PlanNetwork
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.block_strings import BlockStrings
from tests.plan.test_codegen import assert_same

MOBILE, RESNET = spaces["mobilenet"], spaces["resnet"]
SMALL = (
    "SuperConvK3BNRELU(3,8,2,1)SuperResIDWE2K5(8,16,2,8,2)SuperResIDWE1K3(16,16,1,16,1)SuperResIDWE4K7(16,8,2,16,1)"
    "SuperResIDWE6K3(8,24,2,8,1)SuperResIDWE1K5(24,24,2,24,1)SuperConvK1BNRELU(24,2048,1,1)"
)
SMALL_RESNET = (
    "SuperConvK3BNRELU(3,8,1,1)SuperResK5K5(8,16,1,8,2)SuperResK1K7K1(16,16,2,8,2)SuperResK1K3K1(16,16,1,16,1)"
    "SuperResK7K7(16,8,2,16,1)SuperResK3K3(8,8,2,8,1)SuperConvK1BNRELU(8,16,1,1)"
)


def of(text: str) -> tuple[BlockStrings, Plan]:
    """The space of a text, and the small plan of its network."""
    space = MOBILE if "IDW" in text else RESNET
    return space, space.plan(space.parse(text), 10, (3, 32, 32) if space is MOBILE else (3, 8, 8))


# Sizes


def test_zennas_counts_by_hand() -> None:
    """One 3x3 convolution, four sub-layers of two 3x3 convolutions at width 8, one 1x1; images 8, 8, 4, 2, 1."""
    arch = RESNET.smallest()
    first, last, classifier = 3 * 8 * 9, 8 * 8, 8 * 10
    unit, projection = 2 * (8 * 8 * 9 + 8), 8 * 8 + 8
    assert RESNET.zennas_params(arch) == (first + 8) + 4 * (unit + projection) + (last + 8) + classifier + 1
    pixels = (32**2, 16**2, 8**2, 4**2)
    mains = sum(unit * size for size in pixels)
    sides = projection * (32**2 + 8**2 + 4**2 + 2**2)
    assert RESNET.zennas_flops(arch) == (first + 8) * 32**2 + mains + sides + (last + 8) * 4**2 + classifier


@pytest.mark.parametrize("space", [MOBILE, RESNET], ids=lambda space: space.name)
@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 33, 17), (3, 1, 1)])
def test_sizes_without_a_plan(space: BlockStrings, shape: tuple[int, ...]) -> None:
    rng = Random(0)
    for arch in (space.initial, *(space.sample(rng) for _ in range(4))):
        plan = space.plan(arch, 7, shape)
        assert space.size(arch, 7, shape) == (plan.params, plan.flops)


@pytest.mark.parametrize("shape", [(3, 32), (32,), (3, 0, 32), (3, 32, 32, 1), ()])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        UserError, match="mobilenet takes images CxHxW, such as 3x224x224, not " + "x".join(map(str, shape))
    ):
        MOBILE.plan(MOBILE.initial, input_shape=shape)


# Outputs


class Unit(nn.Module):
    """A residual unit as ZenNAS describes it: in and out channels, kernel, stride, groups of each convolution."""

    def __init__(self, convs: list[tuple[int, int, int, int, int]], project: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for taken, given, kernel, stride, groups in convs:
            conv = nn.Conv2d(taken, given, kernel, stride, kernel // 2, groups=groups, bias=False)
            layers += [conv, nn.BatchNorm2d(given, eps=1e-3), nn.ReLU()]
        self.main = nn.Sequential(*layers[:-1])
        stride = max(conv[3] for conv in convs)
        side = nn.Conv2d(convs[0][0], convs[-1][1], 1, stride), nn.BatchNorm2d(convs[-1][1], eps=1e-3)
        self.side = nn.Sequential(*side) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.side(x))


def inverted(taken: int, given: int, kernel: int, stride: int, expansion: int) -> list[tuple[int, int, int, int, int]]:
    inside = given * expansion
    return [(taken, inside, 1, 1, 1), (inside, inside, kernel, stride, inside), (inside, given, 1, 1, 1)]


def bottleneck(taken: int, inside: int, given: int, kernel: int, stride: int) -> list[tuple[int, int, int, int, int]]:
    return [(taken, inside, 1, 1, 1), (inside, inside, kernel, stride, 1), (inside, given, 1, 1, 1)]


def plain(taken: int, inside: int, given: int, kernel: int, stride: int) -> list[tuple[int, int, int, int, int]]:
    return [(taken, inside, kernel, stride, 1), (inside, given, kernel, 1, 1)]


def convolved(taken: int, given: int, kernel: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(taken, given, kernel, stride, kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(given, eps=1e-3), nn.ReLU()]


def by_hand(text: str) -> nn.Module:
    """`SMALL` and `SMALL_RESNET`, written out."""
    if text == SMALL:
        body = [
            Unit(inverted(8, 8, 5, 2, 2), True),
            Unit(inverted(8, 16, 5, 1, 2), True),
            Unit(inverted(16, 8, 5, 1, 2), True),
            Unit(inverted(8, 16, 5, 1, 2), True),
            Unit(inverted(16, 16, 3, 1, 1), True),
            Unit(inverted(16, 16, 3, 1, 1), False),
            Unit(inverted(16, 16, 7, 2, 4), True),
            Unit(inverted(16, 8, 7, 1, 4), True),
            Unit(inverted(8, 8, 3, 2, 6), True),
            Unit(inverted(8, 24, 3, 1, 6), True),
            Unit(inverted(24, 24, 5, 2, 1), True),
            Unit(inverted(24, 24, 5, 1, 1), False),
        ]
        ends = convolved(3, 8, 3, 2), [*convolved(24, 2048, 1, 1), nn.AdaptiveAvgPool2d(1)], nn.Linear(2048, 10)
    else:
        body = [
            Unit(plain(8, 8, 16, 5, 1), True),
            Unit(plain(16, 8, 16, 5, 1), False),
            Unit(bottleneck(16, 8, 16, 7, 2), True),
            Unit(bottleneck(16, 8, 16, 7, 1), False),
            Unit(bottleneck(16, 8, 16, 7, 1), False),
            Unit(bottleneck(16, 8, 16, 7, 1), False),
            Unit(bottleneck(16, 16, 16, 3, 1), True),
            Unit(bottleneck(16, 16, 16, 3, 1), False),
            Unit(plain(16, 16, 8, 7, 2), True),
            Unit(plain(8, 8, 8, 3, 2), True),
        ]
        ends = convolved(3, 8, 3, 1), [*convolved(8, 16, 1, 1), nn.AdaptiveAvgPool2d(1)], nn.Linear(16, 10)
    return nn.Sequential(*ends[0], *body, *ends[1], nn.Flatten(), ends[2])


@pytest.mark.parametrize("text", [SMALL, SMALL_RESNET], ids=["mobilenet", "resnet"])
def test_the_network_is_the_one_written_out_by_hand(text: str) -> None:
    _, plan = of(text)
    ours, theirs = plan.module(), by_hand(text)
    assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]
    torch.manual_seed(0)
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.copy_(mine.uniform_(-0.5, 0.5))
    x = torch.randn(3, *plan.input_shape)
    for training in (True, False):
        y = ours.train(training)(x)
        assert torch.allclose(y, theirs.train(training)(x), atol=1e-4, rtol=1e-4)
        assert y.isfinite().all() and y.std() > 1e-3


@pytest.mark.parametrize("text", [SMALL, SMALL_RESNET], ids=["mobilenet", "resnet"])
def test_module_printed_code_and_engine_agree(text: str) -> None:
    space, plan = of(text)
    assert_same(plan)
    network = PlanNetwork(plan)
    x = torch.randn(4, *plan.input_shape, generator=torch.Generator().manual_seed(0))
    module = plan.module()
    assert torch.allclose(network.forward(x, network.weights, "eval"), module.eval()(x), atol=1e-5)
    assert torch.allclose(network.forward(x, network.weights, "train"), module.train()(x), atol=1e-5)
    assert "conv 5×5" in plan.drawn(space.cell_block)


def test_gates_scale_each_channel_before_the_last_convolution_of_a_unit() -> None:
    plan = MOBILE.plan(MOBILE.parse(SMALL), 10, (3, 32, 32), squeeze=True)
    assert_same(plan)
    names = [node.name for node in plan.nodes]
    gates = [i for i, name in enumerate(names) if name.endswith("gate.scaled")]
    assert len(gates) == 12
    for i in gates:
        assert names[i + 1].endswith(".conv2")
    inside = [width * e for width, e in ((8, 2), (16, 2), (8, 2), (16, 2), (16, 1), (16, 1))]
    inside += [width * e for width, e in ((16, 4), (8, 4), (8, 6), (24, 6), (24, 1), (24, 1))]
    more = sum(2 * c * (c // 4) + 2 * (c // 4) + 2 * c for c in inside)
    assert plan.params - of(SMALL)[1].params == more
