"""AutoFormer: published sizes, what a whole network computes, exact shares under a budget, uniform draws."""

from __future__ import annotations

import json
import math
from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero.engine.network import PlanNetwork
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.autoformer import Autoformer, Former
from epochzero.spaces.budget import Budget, BudgetedSpace
from epochzero.testing.spaces import check_moves, check_text
from tests.plan.test_codegen import assert_same, network
from tests.spaces.test_check_values import AUTOFORMER_B, AUTOFORMER_S, AUTOFORMER_T, largest

TINY, SMALL, BASE = (spaces[f"autoformer_{size}"] for size in ("tiny", "small", "base"))
TOY = Autoformer("toy", (64, 80), (1, 2), (1, 2), (1.0, 2.5))
"""40 architectures: 2 widths, 4 kinds of layers, 1 or 2 layers"""


formers = st.builds(
    lambda space, seed: (space, space.sample(Random(seed))), st.sampled_from([TINY, SMALL, BASE]), st.integers(0)
)


# Sizes


@pytest.mark.parametrize(("space", "arch"), [(SMALL, AUTOFORMER_S), (BASE, AUTOFORMER_B)])
def test_torch_counts_as_many_multiply_accumulates(space: Autoformer, arch: Former) -> None:
    """The contract of spaces checks this for a few tiny ones too."""
    plan = space.plan(arch)
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), torch.no_grad(), counter:
        assert network(plan.code())(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    assert counter.get_total_flops() == 2 * 2 * plan.flops


def test_multiply_accumulates_by_hand() -> None:
    """Of one layer with N tokens: 4 matrices, and 2 products of N x N with and without relative positions."""
    (heads, ratio), width, n = (3, 3.5), 192, 197
    layer = n * 4 * width * 64 * heads + 2 * n * width * int(width * ratio) + 4 * n * n * 64 * heads
    assert TINY.plan(TINY.smallest()).flops == 196 * 3 * 256 * width + 12 * layer + width * 1000


def test_other_images_and_classes() -> None:
    native = TINY.plan(TINY.smallest()).params
    assert TINY.plan(TINY.smallest(), num_classes=10).params == native - 990 * 193
    assert TINY.plan(TINY.smallest(), input_shape=(3, 32, 32)).params == native - (196 - 4) * 192
    assert TINY.plan(TINY.smallest(), input_shape=(1, 224, 224)).params == native - 2 * 256 * 192


@pytest.mark.parametrize("shape", [(3, 224), (3, 224, 208), (3, 28, 28), (3, 0, 0), (784,)])
def test_an_image_that_is_no_square_of_patches_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="side is a multiple of 16.* not " + "x".join(map(str, shape))):
        TINY.plan(TINY.smallest(), input_shape=shape)


# Outputs


def normalised(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def relation(w: dict[str, Tensor], name: str, i: int, j: int, side: int) -> Tensor:
    """The vector for token j as seen from token i; tokens after the first stand in a square."""
    down = right = 0
    if i and j:
        down = (j - 1) // side - (i - 1) // side + 15
        right = (j - 1) % side - (i - 1) % side + 15
    return w[f"{name}_vertical"][down] + w[f"{name}_horizontal"][right]


def slow(arch: Former, w: dict[str, Tensor], image: Tensor) -> Tensor:
    """One image through the whole network, one pair of tokens after the other."""
    side = image.shape[1] // 16
    patches = [image[:, r * 16 : r * 16 + 16, c * 16 : c * 16 + 16] for r in range(side) for c in range(side)]
    kernel, bias = w["stem.patches.weight"], w["stem.patches.bias"]
    x = torch.stack([w["stem.first.token"], *((kernel * patch).sum((1, 2, 3)) + bias for patch in patches)])
    x = x + w["stem.positions.table"]  # [N, E]
    for layer, (heads, _) in enumerate(arch.layers):
        block = f"layer{layer}.attention"
        qkv = linear(normalised(x, w, f"{block}.norm"), w, f"{block}.qkv")  # [N, 3 heads 64]
        rows = []
        for i in range(len(x)):
            said = []
            for h in range(heads):
                q, k, v = (qkv[:, (part * heads + h) * 64 : (part * heads + h + 1) * 64] for part in range(3))
                near = [q[i] @ (k[j] + relation(w, f"{block}.heads.key", i, j, side)) / 8 for j in range(len(x))]
                share = torch.stack(near).exp() / torch.stack(near).exp().sum()
                shown = [v[j] + relation(w, f"{block}.heads.value", i, j, side) for j in range(len(x))]
                said.append(sum(a * b for a, b in zip(share, shown, strict=True)))
            rows.append(torch.cat(said))
        x = x + linear(torch.stack(rows), w, f"{block}.project")
        block = f"layer{layer}.mlp"
        hidden = linear(normalised(x, w, f"{block}.norm"), w, f"{block}.widen")
        x = x + linear(hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2, w, f"{block}.narrow")
    return linear(normalised(x, w, "head.norm")[1:].mean(0), w, "head.linear")


def test_a_whole_network_against_loops() -> None:
    arch = Former(80, ((2, 2.5), (1, 1.0)))
    plan = TOY.plan(arch, num_classes=7, input_shape=(3, 48, 48))
    module = plan.module().double()
    with torch.no_grad():
        for name, table in module.named_parameters():
            if "heads" in name or "norm" in name:
                table.add_(torch.randn(table.shape, generator=torch.Generator().manual_seed(len(name))))
        images = torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        weights = dict(module.state_dict())
        expected = torch.stack([slow(arch, weights, image) for image in images])
        torch.testing.assert_close(module(images), expected)
        for norm in ("train", "eval"):
            torch.testing.assert_close(PlanNetwork(plan).forward(images, weights, norm), expected)
    assert expected.std() > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_printed_networks_compute_the_same(seed: int) -> None:
    assert_same(TOY.plan(TOY.sample(Random(seed)), num_classes=5, input_shape=(3, 32, 32)))


def test_a_tiny_network_gives_finite_logits_at_its_native_size() -> None:
    with torch.no_grad():
        logits = TINY.plan(TINY.smallest()).module()(torch.ones(1, 3, 224, 224))
    assert logits.shape == (1, 1000)
    assert torch.isfinite(logits).all()


# Text and moves


@settings(max_examples=20, deadline=None)
@given(formers)
def test_text_and_moves(drawn: tuple[Autoformer, Former]) -> None:
    space, arch = drawn
    check_text(space, arch)
    check_moves(space, arch, Random(0))
    assert all(arch in space.neighbours(other) for other in space.neighbours(arch))
    ratios, heads = [ratio for _, ratio in arch.layers], [heads for heads, _ in arch.layers]
    depth = len(arch.layers)
    config: dict[str, Any] = {
        "layer_num": depth,
        "mlp_ratio": ratios,
        "num_heads": heads,
        "embed_dim": [arch.width] * depth,
    }
    assert space.parse(json.dumps(config)) == space.parse(str(config)) == arch
    published = {"MLP_RATIO": ratios, "NUM_HEADS": heads, "DEPTH": depth, "EMBED_DIM": arch.width}
    assert space.parse(json.dumps(published)) == arch


def test_a_text_as_people_see_it() -> None:
    text = "384:6x3,6x3.5,5x3,7x3.5,5x4,5x4,5x4,6x4,6x4,7x4,7x4,6x3.5,7x4"
    assert SMALL.text(AUTOFORMER_S) == text
    assert SMALL.parse(f" {text.replace('x4', 'x4.0')}\n") == AUTOFORMER_S
    assert BASE.parse(BASE.text(AUTOFORMER_B)) == AUTOFORMER_B


def test_neighbours_by_hand() -> None:
    """2 widths; of each layer 1 other number of heads and 1 other ratio; depth 12 can only grow, 14 only shrink."""
    assert len(TINY.neighbours(TINY.smallest())) == 2 + 12 * 2 + 4
    assert len(TINY.neighbours(largest(TINY))) == 2 + 14 * 2 + 1
    assert len(SMALL.neighbours(AUTOFORMER_S)) == 2 + 13 * 4 + 1 + 9


LAYERS = ",".join(["3x4"] * 12)
CONFIG: dict[str, Any] = {"layer_num": 12, "mlp_ratio": [4] * 12, "num_heads": [3] * 12, "embed_dim": [192] * 12}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAYERS, "autoformer_tiny writes 192:3x3.5,3x3.5,... for a width and each layer's heads and ratio"),
        ("8:8:8:8:8", "layer 0 is '8:8:8:8'"),
        (f"192:{LAYERS},", "heads x ratio for each layer, and layer 12 is ''"),
        (f"192:{LAYERS},3×4", "layer 12 is '3×4'"),
        (f"192:{LAYERS},³x4", "layer 12 is '³x4'"),
        (f"192:{LAYERS},3x{'9' * 5000}", "layer 12 is "),
        ("192:3x4", "^autoformer_tiny has 12 to 14 layers, not 1\\.$"),
        (f"192:{LAYERS},{LAYERS}", "12 to 14 layers, not 24"),
        (f"320:{LAYERS}", "width of all layers cannot be 320: autoformer_tiny has 192, 216, 240"),
        (f"192:5x4,{LAYERS}", "heads of layer 0 cannot be 5: autoformer_tiny has 3, 4"),
        (TINY.text(AUTOFORMER_T), "MLP ratio of layer 2 cannot be 3.0: autoformer_tiny has 3.5, 4"),
        (SMALL.text(AUTOFORMER_S), "heads of layer 0 cannot be 6"),
        ("{'layer_num': 12", "reads dictionaries as JSON, and this is not one"),
        ('{"a":' * 100_000, "reads dictionaries as JSON, and this is not one"),
        ("{}", "needs layer_num, and lists num_heads and mlp_ratio of that length"),
        (json.dumps(CONFIG | {"layer_num": 13}), "needs layer_num, and lists"),
        (json.dumps(CONFIG | {"num_heads": 3}), "needs layer_num, and lists"),
        (json.dumps(CONFIG | {"embed_dim": [192] * 11 + [216]}), "width of all layers cannot be .192, "),
        (json.dumps(CONFIG | {"embed_dim": None}), "width of all layers cannot be None"),
        (json.dumps({"layer_num": 0, "mlp_ratio": [], "num_heads": [], "embed_dim": []}), "12 to 14 layers, not 0"),
        (json.dumps(CONFIG | {"num_heads": [[3]] * 12}), r"heads of layer 0 cannot be \[3\]"),
    ],
)
def test_text_that_is_no_architecture(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        TINY.parse(text)
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)


# Draws


def test_counts() -> None:
    assert TINY.count() == 1_056_964_608
    assert f"{SMALL.count():.1e}" == "7.7e+13"
    assert f"{BASE.count():.1e}" == "1.0e+13"


def test_samples_are_uniform_over_all_architectures() -> None:
    rng = Random(0)
    drawn = Counter(TOY.sample(rng) for _ in range(8_000))
    assert len(drawn) == TOY.count() == 40
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_the_distribution_of_the_paper_has_all_depths_alike() -> None:
    rng = Random(0)
    drawn = Counter(TOY.sample(rng, "autoformer") for _ in range(8_000))
    expected = {arch: 8_000 / 2 / 2 / 4 ** len(arch.layers) for arch in drawn}
    assert len(drawn) == 40
    assert chisquare(list(drawn.values()), list(expected.values())).pvalue > 1e-3
    with pytest.raises(UserError, match="toy samples by uniform or autoformer, not by 'fair'"):
        TOY.sample(rng, "fair")  # type: ignore[arg-type]


def test_mutation_is_uniform_over_the_neighbours() -> None:
    rng, arch = Random(1), Former(64, ((1, 2.5),))
    children = Counter(TOY.mutate(arch, rng) for _ in range(7_000))
    assert set(children) == set(TOY.neighbours(arch))
    assert len(children) == 1 + 2 + 4
    assert chisquare(list(children.values())).pvalue > 1e-3


def share_within(limit: float, depth_weights: tuple[int, ...]) -> float:
    """Returns the share of tiny networks within a limit of parameters, linear in the number of large layers."""
    share = 0.0
    for width in TINY.widths:
        for depth, weight in zip(TINY.depths, depth_weights, strict=True):
            base, with_head, with_ratio = (
                TINY.plan(Former(width, (first, *[(3, 3.5)] * (depth - 1)))).params
                for first in ((3, 3.5), (4, 3.5), (3, 4.0))
            )
            inside = sum(
                math.comb(depth, a) * math.comb(depth, b)
                for a in range(depth + 1)
                for b in range(depth + 1)
                if base + a * (with_head - base) + b * (with_ratio - base) <= limit
            )
            share += weight / sum(depth_weights) / len(TINY.widths) * inside / 4**depth
    return share


@pytest.mark.parametrize(("limit", "percent"), [(5.9e6, 5.9), (6.0e6, 9.7), (6.2e6, 12.3), (6.5e6, 21.4)])
def test_shares_under_a_budget(limit: float, percent: float) -> None:
    """Against 5,000 draws of the official code and 5,000 of ours, each within three standard errors."""
    share = share_within(limit, (1, 1, 1))
    error = math.sqrt(share * (1 - share) / 5_000)
    assert abs(percent / 100 - share) < 3 * error + 0.0005
    rng = Random(round(limit))
    ours = sum(TINY.plan(TINY.sample(rng, "autoformer")).params <= limit for _ in range(5_000)) / 5_000
    assert abs(ours - share) < 3 * error


def test_uniform_samples_under_a_budget_are_rarer() -> None:
    share = share_within(6e6, (1, 4, 16))
    assert share == pytest.approx(0.0137, abs=1e-4)
    rng = Random(0)
    ours = sum(TINY.plan(TINY.sample(rng)).params <= 6e6 for _ in range(5_000)) / 5_000
    assert abs(ours - share) < 3 * math.sqrt(share * (1 - share) / 5_000)


def test_budgets_are_kept() -> None:
    space, rng = BudgetedSpace(TINY, Budget(max_params=6_000_000), 1000, (3, 224, 224)), Random(0)
    for _ in range(10):
        arch = space.sample(rng)
        assert TINY.plan(arch).params <= 6_000_000
        assert TINY.plan(space.mutate(arch, rng)).params <= 6_000_000
    with pytest.raises(UserError, match=r"No autoformer_tiny network has at most 5,000,000 parameters: .* 5,366,056"):
        BudgetedSpace(TINY, Budget(max_params=5_000_000), 1000, (3, 224, 224))
