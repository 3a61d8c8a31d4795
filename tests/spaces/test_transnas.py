"""TransNAS-Bench-101: sizes of the official networks, 4,096 cells and 3,256 skeletons, heads, and what they compute."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from epochzero.data import pink, white
from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.errors import UserError
from epochzero.plan.drawing import draw
from epochzero.registry import spaces
from epochzero.spaces.nb201 import EDGES, Cell
from epochzero.spaces.transnas import MICRO_MODULES, TASKS, Modules, backbone
from tests.plan.test_codegen import assert_same

MICRO, MACRO = spaces["transnas_micro"], spaces["transnas_macro"]
NAMES = [f"transnas_{kind}{task}" for kind in ("micro", "macro") for task in ("", "_scene", "_jigsaw")]
IMAGE = (3, 256, 256)
SMALL_IMAGES = {16: 1_789_312, 8: 1_067_904, 4: 998_144}
"""the fewest multiply-accumulates of all skeletons, by the image's side"""
AZ = ("az_expressivity", "az_progressivity", "az_trainability")
cells = st.tuples(*[st.sampled_from(MICRO.choices)] * 6)
skeletons = st.sampled_from(tuple(MACRO))


# Sizes


@pytest.mark.parametrize("space", [MICRO, MACRO])
@pytest.mark.parametrize(("task", "classes", "tiles"), [("", 75, 1), ("_scene", 47, 1), ("_jigsaw", 1000, 9)])
def test_heads(space: Any, task: str, classes: int, tiles: int) -> None:
    arch = space.parse("64-41414-1_11_111" if space is MICRO else "64-41414-basic")
    plan = spaces[space.name + task].plan(arch)
    shape = (3, 64, 64) if tiles > 1 else IMAGE
    body = backbone(MICRO_MODULES, arch if space is MICRO else None, shape)
    assert plan.input_shape == ((9, *shape) if tiles > 1 else shape) and plan.output_shape == (classes,)
    assert plan.params == body.params + classes * (tiles * 512 + 1)
    assert plan.flops == tiles * body.flops + classes * tiles * 512


def test_other_classes_and_images() -> None:
    plan = MICRO.plan(MICRO.smallest(), num_classes=10, input_shape=(1, 30, 41))
    assert plan.input_shape == (1, 30, 41) and plan.output_shape == (10,)
    cut = spaces["transnas_macro_jigsaw"].plan((3, 3, 3, 4), input_shape=(3, 96, 48))
    assert cut.params == spaces["transnas_macro_jigsaw"].plan((3, 3, 3, 4)).params


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("transnas_micro", (32,), "takes images CxHxW, such as 3x256x256, not 32"),
        ("transnas_macro_scene", (9, 3, 64, 64), "takes images CxHxW, such as 3x256x256, not 9x3x64x64"),
        ("transnas_micro_jigsaw", (3, 32, 32), "takes .* multiples of 3 that it cuts into nine, not 3x32x32"),
        ("transnas_macro_jigsaw", (8, 3, 64, 64), "takes nine tiles 9xCxHxW, such as 9x3x64x64, .* not 8x3x64x64"),
    ],
)
def test_inputs_that_cannot_work(name: str, shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(UserError, match=f"{name} {says}"):
        spaces[name].plan(spaces[name].smallest(), input_shape=shape)


@pytest.mark.parametrize("side", [256, 64, 32, 16, 8, 4, 1])
def test_no_macro_network_is_smaller(side: int) -> None:
    """At small images there is soon nothing left to halve."""
    shape = 3, side, side
    sizes = {arch: MACRO.plan(arch, 75, shape) for arch in MACRO}
    assert min(sizes, key=lambda arch: sizes[arch].params) == MACRO.least("params", 75, shape)
    assert min(plan.flops for plan in sizes.values()) == sizes[MACRO.least("flops", 75, shape)].flops
    if side in SMALL_IMAGES:
        assert sizes[MACRO.least("flops", 75, shape)].flops == SMALL_IMAGES[side]


def test_the_usual_smallest_macro_network() -> None:
    assert all(spaces[name].least("flops") == spaces[name].smallest() for name in NAMES if "macro" in name)


# Outputs


class Reference:
    """The official networks written out, on the weights of a plan."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.at = "" if "stem.conv1.weight" in weights else "backbone."

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.batch_norm(x, None, None, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], training=True)

    def conv(self, x: Tensor, name: str, stride: int) -> Tensor:
        weight = self.weights[f"{name}.conv.weight"]
        x = F.conv2d(x.relu(), weight, stride=stride, padding=weight.shape[2] // 2)
        return self.norm(x, f"{name}.norm")

    def reduced_skip(self, x: Tensor, name: str) -> Tensor:
        x = F.pad(x.relu(), (0, 1, 0, 1))
        even, odd = (self.weights[f"{name}.{half}.weight"].flatten(1) for half in ("even", "odd"))  # [C'/2, C]
        sides = [-(-(side - 1) // 2) for side in x.shape[2:]]
        places = [x[:, :, at::2, at::2][:, :, : sides[0], : sides[1]] for at in (0, 1)]
        halves = [torch.einsum("oc,bchw->bohw", w, p) for w, p in zip((even, odd), places, strict=True)]
        return self.norm(torch.cat(halves, 1), f"{name}.norm")

    def cell(self, arch: Cell, x: Tensor, name: str, stride: int) -> Tensor:
        nodes = [x]
        for to in (1, 2, 3):
            total: Tensor | int = 0
            for source in range(to):
                op, where = arch[EDGES.index((to, source))], f"{name}.edge{to}{source}"
                step = stride if source == 0 else 1
                if op == "skip_connect":
                    total = total + (self.reduced_skip(nodes[source], where) if step == 2 else nodes[source])
                elif op != "none":
                    total = total + self.conv(nodes[source], where, step)
            if isinstance(total, int):
                wide, down = (2, stride) if stride == 2 else (1, 1)
                b, c, h, w = x.shape
                total = x.new_zeros(b, c * wide, -(-h // down), -(-w // down))
            nodes.append(total)
        return nodes[3]

    def basic(self, x: Tensor, name: str, stride: int) -> Tensor:
        y = self.conv(self.conv(x, f"{name}.conv1", stride), f"{name}.conv2", 1)
        if f"{name}.shortcut.conv.weight" not in self.weights:
            return x + y
        x = F.conv2d(x, self.weights[f"{name}.shortcut.conv.weight"], stride=stride)
        return self.norm(x, f"{name}.shortcut.norm") + y

    def backbone(self, modules: Modules, arch: Cell | None, x: Tensor) -> Tensor:
        for i in (1, 2):
            x = F.conv2d(x, self.weights[f"{self.at}stem.conv{i}.weight"], stride=2, padding=1)
            x = self.norm(x, f"{self.at}stem.norm{i}")
            x = x.relu() if i == 1 else x
        for i, digit in enumerate(modules):
            for j in (0, 1):
                name, stride = f"{self.at}cell{2 * i + j}", 2 if digit > 2 and j == 0 else 1
                x = self.cell(arch, x, name, stride) if arch else self.basic(x, name, stride)
        return x

    def head(self, x: Tensor) -> Tensor:
        return F.linear(x.mean((2, 3)), self.weights["head.linear.weight"], self.weights["head.linear.bias"])


@settings(max_examples=6, deadline=None)
@given(cells, st.sampled_from([(3, 32, 32), (3, 41, 23)]))
def test_micro_networks_are_the_official_ones(arch: Cell, shape: tuple[int, ...]) -> None:
    plan = MICRO.plan(arch, num_classes=5, input_shape=shape)
    weights = plan.module().state_dict()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    ours = PlanNetwork(plan).forward(x, weights, "train")
    reference = Reference(weights)
    expected = reference.head(reference.backbone(MICRO_MODULES, arch, x))
    assert torch.isfinite(ours).all()
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-3)


@settings(max_examples=4, deadline=None)
@given(skeletons)
def test_macro_networks_are_the_official_ones(arch: Modules) -> None:
    plan = MACRO.plan(arch, num_classes=5, input_shape=(3, 32, 32))
    weights = plan.module().state_dict()
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    reference = Reference(weights)
    expected = reference.head(reference.backbone(arch, None, x))
    torch.testing.assert_close(PlanNetwork(plan).forward(x, weights, "train"), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("image", [False, True])
def test_the_jigsaw_runs_the_backbone_once_for_each_tile(image: bool) -> None:
    shape = (3, 48, 48) if image else (9, 3, 16, 16)
    plan = spaces["transnas_macro_jigsaw"].plan((3, 1, 1, 2), num_classes=6, input_shape=shape)
    weights = plan.module().state_dict()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    corners = itertools.product((0, 16, 32), repeat=2)
    tiles = [x[:, :, i : i + 16, j : j + 16] for i, j in corners] if image else list(x.unbind(1))
    reference = Reference(weights)
    expected = reference.head(torch.cat([reference.backbone((3, 1, 1, 2), None, tile) for tile in tiles], 1))
    torch.testing.assert_close(PlanNetwork(plan).forward(x, weights, "train"), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "text"), [("transnas_micro", "64-41414-1_01_230"), ("transnas_macro_scene", "64-1423-basic")]
)
def test_module_printed_code_and_engine_agree(name: str, text: str) -> None:
    plan = spaces[name].plan(spaces[name].parse(text), num_classes=5, input_shape=(3, 32, 32))
    assert_same(plan)
    module = plan.module()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = PlanNetwork(plan)
    torch.testing.assert_close(network.forward(x, network.weights, "train"), module(x))
    torch.testing.assert_close(network.forward(x, module.state_dict(), "eval"), module.eval()(x))


def test_blocks_are_the_stem_and_each_cell() -> None:
    """AZ-NAS reads these blocks; those of the jigsaw are inside the backbones."""
    micro = MICRO.plan(MICRO.smallest(), input_shape=(3, 32, 32))
    macro = MACRO.plan((1, 1, 3, 4), input_shape=(3, 32, 32))
    for plan, count in ((micro, 10), (macro, 8)):
        blocks = list(dict.fromkeys(node.name.partition(".")[0] for node in plan.nodes if node.inputs))
        assert blocks == ["stem", *(f"cell{i}" for i in range(count)), "head"]


@pytest.mark.parametrize("name", NAMES)
def test_the_cell_that_is_drawn_is_there(name: str) -> None:
    space = spaces[name]
    shape = (9, 3, 16, 16) if "jigsaw" in name else (3, 32, 32)
    seen = draw.text(space.plan(space.smallest(), 5, shape), space.cell_block)
    assert ("node1" in seen) == ("micro" in name)
    assert ("cell" in seen.split("\n", 1)[1]) == ("macro" in name)


@pytest.mark.parametrize("name", ["transnas_micro", "transnas_macro", "transnas_macro_jigsaw"])
def test_proxies_run(name: str) -> None:
    space = spaces[name]
    batch = white((9, 3, 32, 32), 6, size=2) if "jigsaw" in name else pink((3, 64, 64), 6, size=2)
    network = PlanNetwork(space.plan(space.sample(Random(3)), 6, batch.input_shape))
    names = ("naswot", "snip", "synflow", "dextr", *(() if "jigsaw" in name else AZ))
    scores = score_network(network, [parse(proxy) for proxy in names], batch, 0).scores
    assert all(scores[proxy].ok and math.isfinite(scores[proxy].value) for proxy in names), scores


# Cells


def test_every_cell_once() -> None:
    assert MICRO.count() == len(set(MICRO)) == len({MICRO.text(arch) for arch in MICRO}) == 4_096


def test_the_digits_are_the_official_ones() -> None:
    arch = MICRO.parse("64-41414-1_02_333")
    assert arch == ("skip_connect", "none", "nor_conv_1x1", "nor_conv_3x3", "nor_conv_3x3", "nor_conv_3x3")


@given(cells)
def test_text_and_neighbours_of_cells(arch: Cell) -> None:
    assert MICRO.parse(MICRO.text(arch)) == MICRO.parse(f" {MICRO.text(arch)}\n") == arch
    neighbours = MICRO.neighbours(arch)
    assert len(set(neighbours)) == 18 and all(arch in MICRO.neighbours(other) for other in neighbours)


def test_cells_share_a_key_just_where_they_compute_the_same() -> None:
    """Edges as functions of one number: all ways to hand out six weights give the same values just for one key.

    None is 0, a skip between later nodes x, a skip of the input w x, convolutions sin(w x) and tanh(w x).
    """
    weights = np.array(list(itertools.permutations([0.7, 1.3, -0.9, 1.9, -1.6, 2.3]))).T  # [6, 720]
    by_key: dict[str, set[bytes]] = defaultdict(set)
    by_values: dict[bytes, set[str]] = defaultdict(set)
    for arch in MICRO:
        nodes: list[Any] = [np.full(weights.shape[1], 1.1)]
        for to in (1, 2, 3):
            total = np.zeros(weights.shape[1])
            for edge, (target, source) in enumerate(EDGES):
                if target == to and arch[edge] != "none":
                    x, w = nodes[source], weights[edge]
                    linear = x if source else w * x
                    total = total + {"1x1": np.sin(w * x), "3x3": np.tanh(w * x)}.get(arch[edge][-3:], linear)
            nodes.append(total)
        values = (np.unique(nodes[3].round(9)) + 0.0).tobytes()
        by_key[MICRO.key(arch)].add(values)
        by_values[values].add(MICRO.key(arch))
    assert all(len(values) == 1 for values in by_key.values()), "a key for two functions"
    assert all(len(keys) == 1 for keys in by_values.values()), "two keys for a function"
    assert len(by_key) == 1_376


# Skeletons


def test_every_skeleton_once() -> None:
    everything = list(MACRO)
    assert MACRO.count() == len(set(everything)) == 3_256
    assert all(MACRO.parse(MACRO.text(arch)) == arch for arch in everything)
    by_length = Counter(map(len, everything))
    assert by_length == {4: 210, 5: 750, 6: 2_296}


@settings(max_examples=20)
@given(skeletons)
def test_neighbours_of_skeletons(arch: Modules) -> None:
    """Against all others: one edit away in the sense of Levenshtein."""

    def one_edit(a: Modules, b: Modules) -> bool:
        if len(a) == len(b):
            return sum(x != y for x, y in zip(a, b, strict=True)) == 1
        short, long = sorted((a, b), key=len)
        return len(long) - len(short) == 1 and any((*long[:i], *long[i + 1 :]) == short for i in range(len(long)))

    assert sorted(MACRO.neighbours(arch)) == sorted(other for other in MACRO if one_edit(arch, other))


def test_draws_are_uniform() -> None:
    rng = Random(0)
    digits = Counter(MICRO.text(MICRO.sample(rng))[-6:-2] for _ in range(6_400))
    assert len(digits) == 64 and chisquare(list(digits.values())).pvalue > 1e-3
    lengths = Counter(len(MACRO.sample(rng)) for _ in range(10_000))
    expected = [count * 10_000 / 3_256 for count in (210, 750, 2_296)]
    assert chisquare([lengths[n] for n in (4, 5, 6)], expected).pvalue > 1e-3
    for space, text in ((MICRO, "64-41414-1_02_333"), (MACRO, "64-1234-basic")):
        around = space.neighbours(space.parse(text))
        children = Counter(space.mutate(space.parse(text), rng) for _ in range(200 * len(around)))
        assert set(children) == set(around)
        assert chisquare(list(children.values())).pvalue > 1e-3


# Bad text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["64-41414-4_00_000", "64-41414-0_00_00", "32-41414-0_00_000", "64-1234-super", "8:8:8:8:8"]
)
def test_text_of_neither_space(name: str, text: str) -> None:
    with pytest.raises(UserError, match=f"is not a {name} string: it should read 64-"):
        spaces[name].parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64-41414-0_00_000", "is not a transnas_macro string"),
        ("64-111-basic", "is not a transnas_macro string"),
        ("64-1234123-basic", "is not a transnas_macro string"),
        ("64-1235-basic", "is not a transnas_macro string"),
        ("64-123²-basic", "is not a transnas_macro string"),
        ("64-111111-basic", "0 modules of '64-111111-basic' double the channels .digits 2 and 4.; .* 1 to 3 do"),
        ("64-2222-basic", "4 modules of '64-2222-basic' double the channels"),
        ("64-1122-basic", "0 modules of '64-1122-basic' halve the resolution .digits 3 and 4.; .* 1 to 4 do"),
        ("64-333334-basic", "6 modules of '64-333334-basic' halve the resolution"),
    ],
)
def test_text_that_is_no_skeleton(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        MACRO.parse(text)


def test_a_skeleton_is_no_cell() -> None:
    with pytest.raises(UserError, match="'64-1234-basic' is not a transnas_micro string"):
        MICRO.parse("64-1234-basic")


def test_every_task_has_its_spaces() -> None:
    assert {spaces[name].task for name in NAMES} == set(TASKS)
    assert all(spaces[name].name == name for name in NAMES)
