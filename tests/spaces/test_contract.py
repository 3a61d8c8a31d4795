"""The contract of every registered space, on small inputs; and that the checks catch what they are for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epochzero.data import white
from epochzero.engine.space_networks import budgeted, size_of
from epochzero.errors import UserError
from epochzero.plan import Plan, chain
from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.linear import Linear
from epochzero.registry import spaces
from epochzero.spaces.budget import Budget, Size
from epochzero.spaces.mlp import MLP
from epochzero.testing import check_space
from epochzero.types import Shape

SHAPES: dict[str, Shape] = {
    "autoformer": (3, 16, 16),
    "darts_imagenet": (3, 32, 32),
    "darts": (3, 8, 8),
    "decoder": (6,),
    "mlp": (1, 4, 4),
    "nasrec": (39,),
    "nats": (3, 8, 8),
    "nb": (3, 8, 8),
    "resnet": (3, 16, 16),
    "transnas_macro_jigsaw": (9, 3, 8, 8),
    "transnas_micro_jigsaw": (9, 3, 8, 8),
}
"""by the beginning of the name"""
OF_PLANS = sorted(name for name in spaces if hasattr(spaces[name], "plan"))
"""the others are models of other packages, see test_published.py"""
SLOW = {
    *("autoformer_base", "autoformer_small", "darts", "darts_imagenet", "mobilenet_16", "nb301_naslib"),
    *("transnas_macro_jigsaw", "transnas_micro_jigsaw"),
}
"""whose smaller relatives are drawn twice from"""


def small(name: str) -> Shape:
    return next((shape for start, shape in SHAPES.items() if name.startswith(start)), (3, 32, 32))


@pytest.mark.parametrize("name", OF_PLANS)
def test_contract(name: str) -> None:
    check_space(name, samples=1 if name in SLOW else 2, input_shape=small(name))


@pytest.mark.parametrize("name", OF_PLANS)
def test_any_mutation_fits_into_the_size_of_its_parent(name: str) -> None:
    space, batch = spaces[name], white(small(name), 10, size=4, parts=1)

    @settings(max_examples=1 if name in SLOW else 2, derandomize=True, database=None, deadline=None)
    @given(st.integers(1, 2**32))
    def fits(seed: int) -> None:
        rng = Random(seed)
        arch = space.sample(rng)
        size = size_of(space, arch, batch)
        budget = Budget(size.params, size.flops)
        assert budget.fits(size_of(space, budgeted(space, budget, batch).mutate(arch, rng), batch))

    fits()


@pytest.mark.parametrize("name", OF_PLANS)
@pytest.mark.parametrize("classes", [0, -1])
def test_a_network_without_classes_is_refused(name: str, classes: int) -> None:
    space = spaces[name]
    for measured in (space.plan, getattr(space, "size", space.plan)):
        with pytest.raises(UserError, match=f"needs at least 1 class, not {classes}"):
            measured(space.smallest(), classes, small(name))


def test_the_seed_decides_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    monkeypatch.setattr("epochzero.testing.spaces.check_smallest", lambda space, archs, batch: seen.append(archs))
    for seed in (1, 1, 2):
        check_space(MLP(), samples=3, input_shape=(6,), seed=seed)
    assert seen[0] == seen[1] != seen[2]


# A space that keeps every promise, and what breaks each


class Dense(nn.Module):
    def __init__(self, hidden: int, num_classes: int, inputs: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(inputs, hidden), nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.hidden(x.flatten(1))))
        return out


class Modules:
    """The architectures of mlp, built as modules."""

    name = "modules"

    def __init__(self) -> None:
        for method in ("parse", "text", "sample", "mutate", "neighbours", "smallest", "count"):
            setattr(self, method, getattr(MLP(), method))

    def __iter__(self) -> Iterator[int]:
        return iter(MLP())

    def build(self, arch: int, num_classes: int, input_shape: Shape) -> nn.Module:
        return Dense(arch, num_classes, input_shape[0])


def test_a_space_of_modules_passes() -> None:
    check_space(Modules(), input_shape=(6,))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Weighing(Op):
    """Each feature times a weight: cost that torch does not count, and no printed code."""

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"weight": Param(inputs[0], "one")}

    def macs(self, *inputs: Shape) -> int:
        return math.prod(inputs[0])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] * w[0]


def weighing(self: MLP, arch: int, num_classes: int = 10, input_shape: Shape = (6,)) -> Plan:
    return chain(input_shape, hidden=Linear(arch), weighed=Weighing(), classifier=Linear(num_classes))


def test_a_space_with_an_op_of_its_own_passes() -> None:
    check_space(type("Weighed", (MLP,), {"plan": weighing})(), input_shape=(6,))


def test_a_space_that_is_not_registered_passes() -> None:
    check_space(MLP(), input_shape=(6,))


calls = itertools.count()
kept = Dense(4, 10, 6)
global_rng = Random(0)


def wrong_params(self: MLP, arch: int, num_classes: int = 10, input_shape: Shape = (6,)) -> Plan:
    plan = MLP.plan(self, arch, num_classes, input_shape)
    plan.__dict__["totals"] = plan.totals._replace(params=plan.params + 1)
    return plan


@dataclass(frozen=True)
class Doubled(Op):
    """Twice its input; where it runs for several networks, as many times as there are, and one more."""

    times: int = 2

    def side_by_side(self, count: int, *inputs: Shape) -> Op:
        return Doubled(count + 1)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return self.times * x[0]


def doubled(self: MLP, arch: int, num_classes: int = 10, input_shape: Shape = (6,)) -> Plan:
    return chain(input_shape, hidden=Linear(arch), doubled=Doubled(), classifier=Linear(num_classes))


def moves_global_state(self: Any, rng: Random) -> int:
    torch.rand(1)
    return rng.choice(list(MLP()))


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (MLP, {"text": lambda self, arch: "24"}, "does not read back"),
        (MLP, {"key": lambda self, arch: next(calls)}, "has another key"),
        (MLP, {"neighbours": lambda self, arch: [2, 4, 4, 6]}, "listed twice|own neighbour"),
        (MLP, {"neighbours": lambda self, arch: list(MLP())}, "own neighbour"),
        (MLP, {"neighbours": lambda self, arch: []}, "has no neighbour"),
        (MLP, {"mutate": lambda self, arch, rng: arch}, "a mutation is no neighbour"),
        (MLP, {"sample": lambda self, rng: global_rng.choice(list(MLP()))}, "the same random state"),
        (MLP, {"sample": moves_global_state}, "torch's global random state"),
        (MLP, {"sample": lambda self, rng: min(rng.choice(list(MLP())), rng.choice(list(MLP())))}, "not uniform"),
        (MLP, {"count": lambda self: 23}, "count\\(\\) is 23, and iteration gives 24"),
        (MLP, {"__iter__": lambda self: iter([2] * 24)}, "gives an architecture twice"),
        (MLP, {"smallest": lambda self: 48}, "fewer parameters than the smallest"),
        (MLP, {"size": lambda self, arch, num_classes, input_shape: Size(0, 0)}, "is drawn against the budget"),
        (MLP, {"parse": lambda self, text: int(MLP.parse(self, text.strip("x")))}, "is read as an architecture"),
        (MLP, {"plan": wrong_params}, "parameters, and its module"),
        (MLP, {"plan": doubled}, r"snip is [\d.]+ for a network by itself, and [\d.]+ for the same network in a popul"),
        (Modules, {"build": lambda self, arch: kept}, "the same module again"),
        (Modules, {"build": lambda self, arch: Dense(arch + next(calls), 10, 6)}, "gives another"),
        (Modules, {"build": lambda self, arch: nn.Sequential(Dense(arch, 10, 6), nn.Flatten(0))}, "should be"),
        (Modules, {"build": lambda self, arch: nn.Sequential(Dense(arch, 10, 6), Infinite())}, "not finite"),
    ],
)
def test_a_broken_promise_is_named(base: type, changes: dict[str, Any], says: str) -> None:
    broken = type("Broken", (base,), changes)()
    for method in changes:
        vars(broken).pop(method, None)
    with pytest.raises(AssertionError, match=says):
        check_space(broken, input_shape=(6,))


class Infinite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 0


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (object(), "The space 'object' lacks name, parse, text, sample, mutate, neighbours, smallest, plan"),
        (type("NoBuild", (Modules,), {"build": property()})(), "The space 'modules' lacks plan \\(or build\\)"),
    ],
)
def test_what_is_no_space_is_refused(space: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_space(space)


def test_the_name_is_that_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spaces._members, "other", MLP())
    with pytest.raises(AssertionError, match="'other' calls itself 'mlp'"):
        check_space("other")
