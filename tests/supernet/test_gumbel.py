"""Gumbel samples and the derivative straight through them."""

from __future__ import annotations

import math

import pytest
import torch

from epochzero.plan import generator
from epochzero.supernet.gumbel import hardened, noise, straight_through


def test_noise_is_gumbel() -> None:
    g = noise(200_000, generator(0, "gumbel"))
    assert g.mean().item() == pytest.approx(0.5772, abs=0.01), "Euler's constant"
    assert g.var().item() == pytest.approx(math.pi**2 / 6, rel=0.02)
    assert torch.isfinite(g).all()


def test_a_sample_follows_the_softmax_of_the_logits() -> None:
    alpha = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
    draws = (alpha + noise(90_000, generator(1)).view(-1, 3)).argmax(1)
    found = torch.bincount(draws, minlength=3).double() / len(draws)
    assert torch.allclose(found, torch.softmax(alpha, 0), atol=0.01)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_k_largest_are_chosen(k: int) -> None:
    logits = torch.tensor([0.3, 2.0, -1.0, 1.0], dtype=torch.float64)
    assert hardened(logits, k).tolist() == [[0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 1]][k - 1]


@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_the_derivative_is_that_of_the_usual_trick(tau: float) -> None:
    """hard + soft - soft.detach(), differentiated by autograd."""
    logits = torch.tensor([0.3, 2.0, -1.0, 1.0], dtype=torch.float64, requires_grad=True)
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    soft = torch.softmax(logits / tau, 0)
    weights = hardened(logits.detach(), 1) + soft - soft.detach()
    (expected,) = torch.autograd.grad((weights * upstream).sum(), logits)
    assert torch.allclose(straight_through(logits.detach(), upstream, tau), expected)
