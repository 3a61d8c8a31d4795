"""Relaxed networks: with one-hot weights each is the network of one architecture."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from epochzero.engine import label_loss
from epochzero.errors import UserError
from epochzero.plan import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.spaces.nb201 import EDGES, OPS
from epochzero.supernet import relax
from epochzero.supernet.relaxed import Relaxed
from epochzero.types import Origin

SPACES = ["nb201", "darts", "nb1shot1_s1", "nb1shot1_s2", "nb1shot1_s3"]
SHAPE = (3, 8, 8)


def small(space: str, cells: int = 1) -> Relaxed:
    return relax(spaces[space], 5, SHAPE, 4, 3 if space == "darts" else cells)


def one_hot(relaxed: Relaxed, rng: Random) -> list[Tensor]:
    vectors = []
    for choice in relaxed.choices:
        vector = torch.zeros(len(choice.options))
        vector[rng.sample(range(len(choice.options)), choice.draws)] = 1
        vectors.append(vector)
    return vectors


@pytest.mark.parametrize("space", SPACES)
def test_inputs_are_the_image_and_one_vector_for_each_choice(space: str) -> None:
    relaxed = small(space)
    assert relaxed.plan.input_shapes == (SHAPE, *((len(choice.options),) for choice in relaxed.choices))
    assert relaxed.plan.output_shape == (5,)
    assert len({choice.name for choice in relaxed.choices}) == len(relaxed.choices)


@pytest.mark.parametrize("space", SPACES)
def test_any_picks_are_an_architecture_of_the_space(space: str) -> None:
    relaxed, found = small(space), spaces[space]
    for seed in range(20):
        rng = Random(seed)
        picks = {c.name: tuple(rng.sample(range(len(c.options)), c.picks)) for c in relaxed.choices}
        arch = relaxed.decode(picks)
        assert found.parse(found.text(arch)) == arch
        assert found.neighbours(arch), "it has a place among the others"


@pytest.mark.parametrize("space", SPACES)
def test_parameters_that_are_not_sampled_have_no_gradient(space: str) -> None:
    relaxed = small(space)
    theta = draw(relaxed.plan.weights, Origin("lecun", 0))
    trainable = [name for name, param in relaxed.plan.weights.items() if param.trainable]
    x, y = torch.randn(4, *SHAPE), torch.tensor([0, 1, 2, 3])
    for seed in range(3):
        weights = one_hot(relaxed, Random(seed))
        leaves = {name: theta[name].clone().requires_grad_() for name in trainable}
        loss = label_loss(execute(relaxed.plan, {**theta, **leaves}, (x, *weights)), y, "mean")
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        moved = {name for name, g in zip(leaves, gradients, strict=True) if g.abs().max() > 0}
        left = relaxed.network(weights)
        alone = {name: theta[name] for name in left.weights}
        assert torch.allclose(execute(left, alone, (x,)), execute(relaxed.plan, theta, (x, *weights)), atol=1e-5)
        sampled = relaxed.sampled(weights)
        assert moved <= set(sampled)
        assert len(sampled) < len(trainable)


def in_relaxed(name: str, arch: tuple[str, ...]) -> str:
    """The name that a parameter of a plain network has in the relaxed one."""
    block, _, rest = name.partition(".edge")
    if not rest:
        return name
    (to, source), leaf = (int(digit) for digit in rest[:2]), rest[3:]
    return f"{block}.edge{to}{source}.{arch[EDGES.index((to, source))]}.{leaf}"


def test_one_hot_nb201_is_the_plain_network() -> None:
    space = spaces["nb201"]
    relaxed = relax(space, 5, SHAPE, 16, 5)
    theta = draw(relaxed.plan.weights, Origin("default", 3))
    x = torch.randn(3, *SHAPE)
    for seed in range(3):
        arch = space.sample(Random(seed))
        plain = space.plan(arch, 5, SHAPE)
        own = {name: theta[in_relaxed(name, arch)] for name in plain.weights}
        weights = [torch.tensor([float(op == option) for option in OPS]) for op in arch]
        assert torch.allclose(execute(relaxed.plan, theta, (x, *weights)), execute(plain, own, (x,)), atol=1e-5)
        names = {in_relaxed(name, arch) for name, param in plain.weights.items() if param.trainable}
        assert set(relaxed.sampled(weights)) <= names


def test_darts_halves_before_its_reduction_cells() -> None:
    relaxed = relax(spaces["darts"], 5, (3, 16, 16), 4, 8)
    shapes = {node.name: node.shape for node in relaxed.plan.nodes}
    assert [shapes[f"cell{i}.out"] for i in range(8)] == [
        *[(16, 16, 16)] * 2,
        *[(32, 8, 8)] * 3,
        *[(64, 4, 4)] * 3,
    ]


def test_darts_pairs_the_best_with_the_best() -> None:
    relaxed = small("darts")
    picks = {c.name: (2, 0) if "op" in c.name else (1, 0) for c in relaxed.choices}
    text = spaces["darts"].text(relaxed.decode(picks))
    assert "('max_pool_3x3', 0), ('skip_connect', 1)" in text


@pytest.mark.parametrize("space", ["resnet", "nb101", "mlp"])
def test_other_spaces_are_refused(space: str) -> None:
    found: Any = spaces[space]
    with pytest.raises(UserError, match=f"The space '{space}' has no relaxed network"):
        relax(found, 10, SHAPE, 4, 1)


def test_darts_has_both_kinds_of_cells() -> None:
    with pytest.raises(UserError, match="at least 3 cells: 2 would all be reduction cells"):
        relax(spaces["darts"], 5, SHAPE, 4, 2)
    with pytest.raises(UserError, match="at least 4x4, such as 3x32x32, not 3x2x8"):
        relax(spaces["darts"], 5, (3, 2, 8), 4, 3)
