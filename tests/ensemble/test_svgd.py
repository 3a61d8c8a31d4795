"""SVGD-RD against its formula written out, and on the mixture of Figure 5.2."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import median

import pytest
import torch
from torch import Tensor

from epochzero.ensemble.svgd import LEAST, direction, median_bandwidth, svgd_rd
from epochzero.errors import UserError
from epochzero.registry import experiments
from epochzero_papers.thesis.figure5_2 import DELTAS, log_density, mean_distance, sampled, score


def squares(x: Tensor) -> Tensor:
    return (x[..., :, None, :] - x[..., None, :, :]).square().sum(-1)


def written_out(x: Tensor, slopes: Tensor, delta: float, h: float) -> Tensor:
    """(B.10) with two loops, each gradient of the kernel by autograd."""
    found = torch.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            other, own = x[j].clone().requires_grad_(), x[i].clone().requires_grad_()
            k = torch.exp(-(other - own).square().sum() / h)
            of_j, of_i = torch.autograd.grad(k, [other, own])
            found[i] += (k.detach() * slopes[j] + of_j - delta * of_i) / len(x)
    return found


@pytest.mark.parametrize("delta", [-2.0, -1.0, -0.5, 0.0, 1.0])
def test_update_is_the_derivation_written_out(delta: float) -> None:
    x, slopes = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    distances = [float((one - other).norm()) for one, other in combinations(x, 2)]
    h = median(distances) ** 2 / math.log(5)
    assert torch.allclose(direction(x, slopes, delta), written_out(x, slopes, delta, h), atol=1e-12)


def test_two_particles_by_hand() -> None:
    """At 0 and 2, flat density: med^2 = 4, h = 4 / log 2, k = 1/2, push = (1 + delta) / 2 * 2 * (2 / h) * k."""
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    push = direction(x, torch.zeros_like(x), delta=0.5)
    expected = 1.5 / 2 * 2 * (2 * math.log(2) / 4) / 2
    assert push[1, 0] == pytest.approx(expected) and push[0, 0] == pytest.approx(-expected)
    assert direction(x, torch.zeros_like(x), delta=-1.0).abs().max() == 0
    assert direction(x, torch.zeros_like(x), delta=-1.5)[1, 0] < 0, "attraction"


def test_runs_side_by_side_are_runs_alone() -> None:
    start = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    deltas = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    together = svgd_rd(score, start, deltas[:, None, None], steps=20)
    for own, delta, found in zip(start, deltas, together, strict=True):
        assert torch.allclose(svgd_rd(score, own, float(delta), steps=20), found)


def test_bandwidth_never_fails() -> None:
    alone, alike = torch.zeros(1, 2), torch.ones(4, 2)
    assert median_bandwidth(squares(alone)).item() == 1
    assert median_bandwidth(squares(alike)).item() == pytest.approx(LEAST)
    assert torch.isfinite(svgd_rd(score, alike.double(), 1.0, steps=5)).all()


def test_attraction_ends_in_one_point() -> None:
    start = torch.randn(6, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    end = svgd_rd(score, start, -2.0)
    assert mean_distance(end) < 1e-6 and score(end).norm() < 1e-6


@pytest.mark.parametrize("delta", [-2.0, 0.0, 3.0])
def test_one_particle_ends_at_a_mode(delta: float) -> None:
    """Proposition 5.2."""
    for start in ([-3.0, 2.0], [2.0, 2.0]):
        end = svgd_rd(score, torch.tensor([start]), delta, momentum=0)
        assert score(end).norm() < 1e-9
        around = end + 0.1 * torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
        assert (log_density(around) < log_density(end)).all()


def test_score_is_the_gradient_of_the_log_density() -> None:
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(log_density(x).sum(), [x])
    assert torch.allclose(score(x), gradient)


def test_the_larger_delta_the_farther_apart() -> None:
    """Figure 5.2, as the issue puts it in numbers."""
    particles = sampled(15, 2, 1000, seed=5)
    assert (mean_distance(particles).diff(dim=1) > 0).all(), DELTAS
    assert (log_density(particles).mean(-1) > -1.3).all()


def test_experiment_measures_it() -> None:
    recipe = experiments["thesis-figure5.2"]
    found = recipe.run(type(recipe.quick)(repeats=2, steps=100))
    distances = [row.found.value for row in found.rows if row.statistic == "mean distance"]
    assert len(distances) == len(DELTAS) and distances == sorted(distances)


def test_refusals() -> None:
    with pytest.raises(UserError, match=r"at least one point: \[\.\.\., n, d\], not \[3\]"):
        svgd_rd(score, torch.zeros(3), 0.0)
    for delta in (torch.nan, torch.inf, 1e300):
        with pytest.raises(UserError, match="diverged"):
            svgd_rd(score, torch.eye(2), delta, steps=20)
