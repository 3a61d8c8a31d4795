"""NASI's Table 3 in the one-shot network: a cell's network is the one that its search samples."""

from __future__ import annotations

from random import Random

import pytest
import torch

from epochzero.data import white
from epochzero.plan import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.supernet.nasi import trace_norm
from epochzero.supernet.relaxed import relax
from epochzero.types import Origin
from epochzero_papers.nasi.table3_one_shot import OneShot, picks_of

SPACES = ("nb1shot1_s1", "nb1shot1_s2", "nb1shot1_s3")


@pytest.mark.parametrize("name", SPACES)
def test_picks_decode_to_the_cell(name: str) -> None:
    space = spaces[name]
    relaxed = relax(space, 10, (3, 16, 16), 4, 1)
    for seed in range(5):
        cell = space.sample(Random(seed))
        assert relaxed.decode(picks_of(cell)) == cell


@pytest.mark.parametrize("name", SPACES)
def test_a_cell_has_the_trace_norm_of_the_search(name: str) -> None:
    space, origin = spaces[name], Origin("lecun", 3)
    own = OneShot.of(space, 4, 1)
    relaxed = relax(space, 10, (3, 16, 16), 4, 1)
    theta = draw(relaxed.plan.weights, origin, torch.device("cpu"))
    x, _ = white((3, 16, 16), 10, 6, 1, 0).part(0)
    y = torch.arange(6)
    for seed in range(3):
        cell = space.sample(Random(seed))
        plan = own.plan(cell, 10, (3, 16, 16))
        weights = {n: w.requires_grad_() for n, w in draw(plan.weights, origin, torch.device("cpu")).items()}
        trained = [weights[n] for n, param in plan.weights.items() if param.trainable]
        loss = torch.nn.functional.cross_entropy(execute(plan, weights, (x,)), y)
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        s = sum(float(g.double().square().sum()) for g in gradients if g is not None)
        chosen = picks_of(cell)
        rows = [torch.zeros(len(of.options)).index_fill(0, torch.tensor(chosen[of.name]), 1) for of in relaxed.choices]
        assert s == pytest.approx(float(trace_norm(relaxed, theta, rows, x, y)), rel=1e-3)


def test_cells_share_the_weights_of_common_parts() -> None:
    space = spaces["nb1shot1_s1"]
    own = OneShot.of(space, 4, 1)
    one, other = (own.plan(space.sample(Random(seed)), 10, (3, 16, 16)).weights for seed in (0, 1))
    shared = set(one) & set(other)
    assert shared
    assert all(one[name].shape == other[name].shape for name in shared)
