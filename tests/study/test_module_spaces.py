"""Spaces that build modules: the same scores, budgets, stores and searches as with plans, and seeds that hold."""

from __future__ import annotations

import random
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.engine import parse
from epochzero.engine.space_networks import built, module_of, network_of, size_of
from epochzero.errors import MachineError, UserError
from epochzero.spaces.mlp import MLP
from epochzero.store import Store
from epochzero.study.result import nothing_found
from epochzero.study.task import Task
from epochzero.types import Origin, Shape

BATCH = data.white((2, 3), num_classes=4, size=8)


class Perceptrons:
    """The architectures of mlp as modules: the same layers, so the same sizes as its plans."""

    name = "perceptrons"

    def parse(self, text: str) -> int:
        return MLP().parse(text)

    def text(self, arch: int) -> str:
        return str(arch)

    def sample(self, rng: Random) -> int:
        return MLP().sample(rng)

    def mutate(self, arch: int, rng: Random) -> Any:
        return MLP().mutate(arch, rng)

    def neighbours(self, arch: int) -> list[int]:
        return MLP().neighbours(arch)

    def smallest(self) -> int:
        return MLP().smallest()

    def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
        inputs = input_shape[0] * input_shape[1]
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, arch), nn.ReLU(), nn.Linear(arch, num_classes))


SPACE = Perceptrons()


def weights(seed: int, arch: int = 6, scheme: str = "default") -> dict[str, Tensor]:
    return dict(network_of(SPACE, arch, BATCH, Origin(scheme, seed)).weights)


# Weights


@pytest.mark.parametrize("scheme", ["default", "kaiming"])
def test_weights_depend_on_origin_and_architecture_alone(scheme: str) -> None:
    first = weights(0, scheme=scheme)
    torch.manual_seed(99)
    weights(5, 8)
    again = weights(0, scheme=scheme)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["1.weight"], weights(1, scheme=scheme)["1.weight"])


def test_the_default_is_the_modules_own_initialisation() -> None:
    found = weights(0, 48)["1.weight"]
    assert found.abs().max() <= 6**-0.5  # U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as nn.Linear draws
    assert found.std().item() == pytest.approx(18**-0.5, rel=0.1)


def test_a_scheme_draws_linear_layers_anew() -> None:
    """Under kaiming N(0, 2 / fan_in), biases 0; and the weights that the plan of the same layers has."""
    drawn = weights(3, 48, "kaiming")
    assert drawn["1.weight"].std().item() == pytest.approx((2 / 6) ** 0.5, rel=0.15)
    assert not drawn["1.bias"].any() and not drawn["3.bias"].any()


def test_building_leaves_the_random_states_alone() -> None:
    class Noisy(Perceptrons):
        def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
            made = super().build(arch, num_classes, input_shape)
            nn.init.constant_(made.get_parameter("1.bias"), random.random() + np.random.rand())
            return made

    before, python, numpy = torch.random.get_rng_state(), random.getstate(), str(np.random.get_state())
    one, other = (built(Noisy(), 6, BATCH, 0).state_dict() for _ in range(2))
    assert torch.equal(one["1.bias"], other["1.bias"])
    assert torch.equal(torch.random.get_rng_state(), before) and random.getstate() == python
    assert str(np.random.get_state()) == numpy


@pytest.mark.parametrize("scheme", ["default", "xavier"])
def test_the_module_has_the_weights_that_are_scored(scheme: str) -> None:
    origin = Origin(scheme, 2)
    module = module_of(SPACE, 10, BATCH, origin)
    asked = ["snip", "l2_norm", "naswot"]
    by_space = ez.score(10, asked, space=SPACE, data=BATCH, init=scheme, seed=2)
    assert by_space == ez.score(module, asked, data=BATCH, seed=2)
    assert all(score.ok for score in by_space.values())


# Sizes


def test_sizes_are_those_of_the_plan() -> None:
    for arch in (2, 24, 48):
        size, plan = size_of(SPACE, arch, BATCH), MLP().plan(arch, 4, (2, 3))
        assert (size.params, size.flops) == (plan.params, plan.flops) == (6 * arch + arch + 4 * arch + 4, 10 * arch)


def test_frozen_weights_are_no_parameters() -> None:
    class Frozen(Perceptrons):
        def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
            made = super().build(arch, num_classes, input_shape)
            next(made.parameters()).requires_grad_(False)
            return made

    assert size_of(Frozen(), 2, BATCH).params == 2 + 8 + 4


def test_build_takes_what_it_names() -> None:
    class Fixed(Perceptrons):
        def build(self, arch: int) -> nn.Module:  # type: ignore[override]
            return super().build(arch, 4, (2, 3))

    assert size_of(Fixed(), 2, BATCH).params == 14 + 12
    assert ez.score(2, "l2_norm", space=Fixed(), data=BATCH)["l2_norm"].ok


# Searches and stores


def test_a_search_finds_the_largest_that_fits() -> None:
    found = ez.search(SPACE, "params", "random", 24, data=BATCH, max_params=200)
    assert found.best is not None and found.best.text == "16"  # 11 * 16 + 4 = 180, and 11 * 18 + 4 = 202
    assert sum(p.numel() for p in found.module().parameters()) == 180
    with pytest.raises(UserError, match="'perceptrons' gives modules and no plans"):
        _ = found.plan


def test_a_budget_that_none_meets_is_refused() -> None:
    with pytest.raises(UserError, match="No perceptrons network has at most 20 parameters: the smallest has 26"):
        ez.search(SPACE, "params", budget=2, data=BATCH, max_params=20)


def test_the_store_knows_the_scores(tmp_path: Path) -> None:
    first = ez.search(SPACE, "snip", budget=6, data=BATCH, store=tmp_path / "run.db")
    again = ez.search(SPACE, "snip", budget=6, data=BATCH, store=tmp_path / "run.db")
    assert first.best == again.best and first.run == again.run
    task = Task(SPACE, [parse("snip")], BATCH)
    with Store.open(tmp_path / "run.db") as store:
        kept = store.scores(task.setting, parse("snip").key, [str(arch) for arch in MLP()])
    assert len(kept) == 6
    assert all(task.score([int(text)])[0][0]["snip"] == score for text, score in kept.items())


# Errors


class Raises(Perceptrons):
    def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
        raise KeyError("width")


class NoModule(Perceptrons):
    def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> Any:
        return "Linear"


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (NoModule(), "The space 'perceptrons' builds str for '6', not an nn.Module"),
        (object(), "The space 'object' lacks name"),
    ],
)
def test_a_space_that_cannot_build_says_so(space: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        ez.score(6, "snip", space=space, data=BATCH)
    assert len(str(raised.value).splitlines()) == 1


def test_a_network_that_cannot_be_built_fails_in_its_scores() -> None:
    """And a search goes on without it, also within a budget."""

    class Few(Perceptrons):
        def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
            if arch != 6:
                raise KeyError("width")
            return super().build(arch, num_classes, input_shape)

    score = ez.score(8, "snip", space=Few(), data=BATCH)["snip"]
    assert (score.status, score.why) == ("failed", "'8' cannot be built: KeyError: 'width'")
    found = ez.search(Few(), "snip", "random", 24, data=BATCH, max_params=200)
    assert found.best is not None and found.best.text == "6"
    assert found.unscored["'8' cannot be built: KeyError: 'width'"] == 1
    with pytest.raises(MachineError, match="cannot be built"):
        raise nothing_found(ez.search(Raises(), "snip", "random", 24, data=BATCH))


@pytest.mark.parametrize("init", ["default", "kaiming"])
def test_a_module_that_cannot_run_fails_in_its_scores(init: str) -> None:
    """And what does not need it to run is scored all the same, where the weights are its own."""

    class Misfit(Perceptrons):
        def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
            return nn.Linear(7, num_classes)

    scores = ez.score(6, ["snip", "naswot"], space=Misfit(), data=BATCH, init=init)
    assert {score.status for score in scores.values()} == {"failed"}
    assert all("the module's forward raised RuntimeError" in score.why for score in scores.values())


def test_a_count_that_cannot_be_made_is_refused() -> None:
    class Curious(nn.Module):
        """Asks for values, which tensors without values do not have."""

        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum().item() > 0 else -x

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("not today")

    class Odd(Perceptrons):
        def __init__(self, first: nn.Module) -> None:
            self.first = first

        def build(self, arch: int, num_classes: int = 10, input_shape: Shape = (2, 3)) -> nn.Module:
            return nn.Sequential(self.first, super().build(arch, num_classes, input_shape))

    assert ez.search(Odd(Curious()), "l2_norm", budget=3, data=BATCH, max_flops=300).best is not None
    with pytest.raises(UserError, match="The multiply-accumulates of '2' cannot be counted"):
        ez.search(Odd(Broken()), "l2_norm", budget=3, data=BATCH, max_flops=300)
