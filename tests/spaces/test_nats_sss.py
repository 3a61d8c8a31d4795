"""NATS-Bench's size space: sizes known from the benchmark, what a cell that widens computes, uniform draws."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from epochzero.engine import PlanNetwork
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.nats_sss import CELL, Widths
from tests.plan.test_codegen import assert_same

SPACE, NB201 = spaces["nats_sss"], spaces["nb201"]
widths = st.tuples(*[st.sampled_from(range(8, 65, 8))] * 5)


# Sizes


@given(widths)
def test_sizes_by_hand(arch: Widths) -> None:
    """A convolution has k^2 in out weights and a norm of 2 out; a cell has five, two from its input, and a skip."""

    def conv(kernel: int, before: int, after: int) -> int:
        return kernel**2 * before * after + 2 * after

    def cell(before: int, after: int) -> int:
        skip = 0 if before == after else conv(1, before, after)
        return 2 * conv(3, before, after) + 3 * conv(3, after, after) + skip

    def reduction(before: int, after: int) -> int:
        return conv(3, before, after) + conv(3, after, after) + before * after

    a, b, c, d, e = arch
    layers = cell(a, a) + reduction(a, b) + cell(b, c) + reduction(c, d) + cell(d, e)
    assert SPACE.plan(arch, num_classes=7).params == conv(3, 3, a) + layers + 2 * e + 7 * (e + 1)


def test_it_is_the_nb201_network_with_one_cell_for_each_stage() -> None:
    ours, theirs = SPACE.plan((16, 32, 32, 64, 64)), NB201.plan(CELL)
    kept = ("stem", "reduce", "head", "cell0", "cell5", "cell10")
    names = {name: param for name, param in theirs.weights.items() if name.startswith(kept)}
    assert sorted(map(repr, ours.weights.values())) == sorted(map(repr, names.values()))


@pytest.mark.parametrize("shape", [(3, 32), (3, 30, 32), (3, 2, 2), (32,)])
def test_an_image_that_cannot_be_halved_twice_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"nats_sss takes .* multiples of 4.* not " + "x".join(map(str, shape))):
        SPACE.plan((8,) * 5, input_shape=shape)


# Outputs


def test_a_cell_that_widens() -> None:
    """Against the same written out: node 3 = projected input + conv(node 1) + conv(node 2)."""
    plan = SPACE.plan((8, 16, 24, 16, 8), input_shape=(3, 8, 8))
    w = plan.module().state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        return F.batch_norm(x, None, None, w[f"{name}.norm.weight"], w[f"{name}.norm.bias"], training=True)

    def edge(x: Tensor, name: str) -> Tensor:
        return norm(F.conv2d(x.clamp(min=0), w[f"{name}.conv.weight"], padding=1), name)

    seen: dict[str, Tensor] = {}
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    network = PlanNetwork(plan, w)
    network.forward(
        x, w, "train", lambda layer: seen.update({layer.name: layer.output, f"{layer.name}<": layer.inputs[0]})
    )
    x0 = seen["cell1.edge10.relu<"]  # [4, 16, 4, 4]
    x1 = edge(x0, "cell1.edge10")
    x2 = edge(x0, "cell1.edge20") + edge(x1, "cell1.edge21")
    skip = norm(F.conv2d(x0, w["cell1.edge30.conv.weight"]), "cell1.edge30")
    x3 = skip + edge(x1, "cell1.edge31") + edge(x2, "cell1.edge32")
    assert x3.shape == (4, 24, 4, 4)
    torch.testing.assert_close(seen["reduce2.conv1.relu<"], x3)


@settings(max_examples=3, deadline=None)
@given(widths)
def test_module_printed_code_and_engine_agree(arch: Widths) -> None:
    plan = SPACE.plan(arch, input_shape=(3, 8, 8))
    assert_same(plan)
    module = plan.module()
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    network = PlanNetwork(plan)
    assert torch.isfinite(module(x)).all()
    torch.testing.assert_close(network.forward(x, network.weights, "train"), module(x))
    torch.testing.assert_close(network.forward(x, module.state_dict(), "eval"), module.eval()(x))


# Architectures


def test_every_architecture_once() -> None:
    assert SPACE.count() == len(set(SPACE)) == 32_768


@given(widths)
def test_text_and_neighbours(arch: Widths) -> None:
    assert SPACE.parse(SPACE.text(arch)) == SPACE.parse(f" {SPACE.text(arch)}\n") == arch
    neighbours = SPACE.neighbours(arch)
    assert len(set(neighbours)) == 35
    assert all(sum(a != b for a, b in zip(arch, other, strict=True)) == 1 for other in neighbours)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("8:8:8:8", "A nats_sss string is 5 widths joined by ':', not 4: '8:8:8:8'"),
        ("8:8:8:8:8:8", "5 widths joined by .:., not 6"),
        ("8:8:8:8:68", "cannot have '68' channels. Did you mean '8'"),
        ("8:8:8:8:0", "cannot have '0' channels"),
        ("8:8:8:8:72", "cannot have '72' channels"),
        ("8:8:8:8:08", "cannot have '08' channels. Did you mean '8'"),
        ("8:8:8:8: 8", "cannot have ' 8' channels"),
        ("8:8:8:8:²", "cannot have '²' channels"),
        ("64-41414-1_02_333", "5 widths joined by .:., not 1"),
        (NB201.text(NB201.smallest()), "5 widths joined by .:., not 1"),
    ],
)
def test_text_that_is_no_architecture(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        SPACE.parse(text)


def test_draws_are_uniform() -> None:
    rng = Random(0)
    drawn = [SPACE.sample(rng) for _ in range(10_000)]
    for layer in range(5):
        assert chisquare(list(Counter(arch[layer] for arch in drawn).values())).pvalue > 1e-3
    assert chisquare(list(Counter(arch[1:3] for arch in drawn).values())).pvalue > 1e-3
    children = Counter(SPACE.mutate((8, 16, 24, 32, 64), rng) for _ in range(7_000))
    assert set(children) == set(SPACE.neighbours((8, 16, 24, 32, 64)))
    assert chisquare(list(children.values())).pvalue > 1e-3
