"""SiGeo's perceptrons: 24 widths, sizes by hand, and what their plan computes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from scipy.stats import chisquare

from epochzero.engine.network import PlanNetwork
from epochzero.errors import UserError
from epochzero.registry import spaces
from tests.plan.test_codegen import assert_same

SPACE = spaces["mlp"]


def test_the_widths_of_the_paper() -> None:
    assert SPACE.count() == len(list(SPACE)) == 24
    assert list(SPACE)[:3] == [2, 4, 6]
    assert list(SPACE)[-1] == 48


@pytest.mark.parametrize("hidden", [2, 24, 48])
def test_sizes_by_hand(hidden: int) -> None:
    plan = SPACE.plan(hidden)
    assert plan.params == 784 * hidden + hidden + 10 * hidden + 10
    assert plan.flops == (784 + 10) * hidden


def test_what_it_computes() -> None:
    plan = SPACE.plan(6)
    module = plan.module()
    w = dict(module.named_parameters())
    x = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    hidden = (x.flatten(1) @ w["hidden.weight"].T + w["hidden.bias"]).clamp(min=0)  # [B, 6]
    expected = hidden @ w["classifier.weight"].T + w["classifier.bias"]
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(PlanNetwork(plan).forward(x, module.state_dict(), "train"), expected)
    assert "self.hidden = nn.Linear(784, 6)" in assert_same(plan)


def test_any_input_is_flattened() -> None:
    assert SPACE.plan(8, num_classes=100, input_shape=(3, 32, 32)).params == 3073 * 8 + 9 * 100
    assert SPACE.plan(8, input_shape=(13,)).params == 14 * 8 + 9 * 10
    with pytest.raises(UserError, match="takes inputs such as 1x28x28, not 1x0x28, which is empty"):
        SPACE.plan(8, input_shape=(1, 0, 28))


def test_samples_are_uniform() -> None:
    rng = Random(0)
    drawn = Counter(SPACE.sample(rng) for _ in range(4_800))
    assert set(drawn) == set(SPACE)
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_neighbours_are_the_next_widths() -> None:
    assert SPACE.neighbours(2) == [4]
    assert SPACE.neighbours(24) == [22, 26]
    assert SPACE.neighbours(48) == [46]
    drawn = Counter(SPACE.mutate(24, Random(seed)) for seed in range(400))
    assert chisquare(list(drawn.values())).pvalue > 1e-3


@pytest.mark.parametrize("text", ["0", "3", "50", "-2", "24.0", "024", "²", "24 24", "8:8:8:8:8", "|none~0|"])
def test_text_that_is_no_width(text: str) -> None:
    with pytest.raises(UserError, match="write its hidden units, an even number from 2 to 48"):
        SPACE.parse(text)
