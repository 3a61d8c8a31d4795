"""The posterior of architectures: closed forms, straight-through gradients, and data whose best option is known."""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

import pytest
import torch
from torch import Tensor

from epochzero.ensemble.posterior import Learner, Posterior, divergence, fit_posterior, straight_through_sample
from epochzero.errors import UserError
from epochzero.plan import Builder, chain, generator
from epochzero.plan.ops.linear import Linear
from epochzero.supernet import SharedWeights, SinglePath
from epochzero.supernet.gumbel import straight_through
from epochzero.supernet.relaxed import Choice, mix
from epochzero.supernet.single_path import Decision
from epochzero.train.image_data import Images


def table(*rows: list[float]) -> tuple[Tensor, Tensor]:
    """Logits and which options are absent, in one table."""
    width = max(map(len, rows))
    logits = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    return logits, torch.arange(width) >= torch.tensor([[len(row)] for row in rows])


# Closed forms


def test_kl_by_hand() -> None:
    """p = (3/4, 1/4): 3/4 log(3/2) + 1/4 log(1/2); a uniform decision adds nothing."""
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert float(divergence(*table([math.log(3.0), 0.0], [0.0] * 5))) == pytest.approx(expected)


def test_kl_is_that_of_all_architectures_counted() -> None:
    rows = [torch.randn(k, generator=generator(0, k), dtype=torch.float64) for k in (2, 3, 4)]
    log_p = [row.log_softmax(0) for row in rows]
    together = [
        float(sum(p[pick] for p, pick in zip(log_p, picks, strict=True))) for picks in product(*map(range, (2, 3, 4)))
    ]
    assert sum(map(math.exp, together)) == pytest.approx(1)
    expected = sum(math.exp(one) * (one + math.log(24)) for one in together)
    assert float(divergence(*table(*(row.tolist() for row in rows)))) == pytest.approx(expected)


@pytest.mark.parametrize(("likelihood", "weight"), [("sum", 24), ("mean", 1)])
def test_the_bound_weighs_the_likelihood_against_kl(likelihood: Literal["sum", "mean"], weight: int) -> None:
    weights, images = three_classifiers(), classified(24)
    learner = Learner(weights.network, images, likelihood=likelihood)
    with torch.no_grad():
        learner.alpha += torch.tensor([[1.0, 0.0, -1.0]])
        expected = -2 * weight - float(divergence(learner.alpha, learner.absent))
        assert float(learner.bound(torch.tensor(-2.0))) == pytest.approx(expected)


def test_gradient_of_kl_is_finite_where_options_are_absent() -> None:
    logits, absent = table([1.0, 0.0], [0.5, 0.2, -0.1])
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(-divergence(logits, absent), [logits])
    assert torch.isfinite(gradient).all() and gradient[0, 2] == 0
    p = torch.softmax(torch.tensor([1.0, 0.0], dtype=torch.float64), 0)
    surprise = p.log() + math.log(2)
    assert torch.allclose(gradient[0, :2], -p * (surprise - p @ surprise))


def test_temperature() -> None:
    flat = Posterior((torch.tensor([2.0, 0.0]),), temperature=2.0)
    assert flat.probabilities[0].tolist() == pytest.approx(torch.tensor([1.0, 0]).softmax(0).tolist())
    with pytest.raises(UserError, match="a temperature above 0, not 0"):
        Posterior((torch.zeros(2),), temperature=0)


def test_samples_have_the_probabilities() -> None:
    posterior, rng = Posterior((torch.tensor([0.7, 0.2, 0.1]).log(), torch.zeros(2))), generator(0, "samples")
    drawn = torch.tensor([posterior.sample(rng) for _ in range(2000)])
    assert (drawn[:, 0] == 0).double().mean() == pytest.approx(0.7, abs=0.04)
    assert drawn[:, 1].double().mean() == pytest.approx(0.5, abs=0.05)


# Straight through


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_straight_through_against_the_closed_form(tau: float) -> None:
    logits, absent = table([0.3, -0.2, 0.9], [1.0, 0.5])
    logits.requires_grad_()
    rng = generator(1, "gumbel")
    gumbel, worth = torch.rand(2, 2, 3, generator=rng, dtype=torch.float64)
    sample = straight_through_sample(logits, absent, gumbel, tau)
    assert torch.allclose(sample.sum(1), torch.ones(2, dtype=torch.float64)) and sample[1, 2] == 0
    assert sample.argmax(1).tolist() == [int((logits + gumbel)[0].argmax()), int((logits + gumbel)[1, :2].argmax())]
    (gradient,) = torch.autograd.grad((sample * worth).sum(), [logits])
    for row, count in ((0, 3), (1, 2)):
        expected = straight_through((logits + gumbel)[row, :count].detach(), worth[row, :count], tau)
        assert torch.allclose(gradient[row, :count], expected)


# Learning


def three_classifiers() -> SharedWeights:
    """Of two numbers, the place of the larger: one option says it, one nothing, one the contrary."""
    net = Builder()
    x, pick = net.input((2,)), net.input((3,), "pick")
    blocks = {name: chain((2,), linear=Linear(2)) for name in ("right", "nothing", "wrong")}
    mix(net, blocks, x, pick, "edge")
    decision = Decision.one_of(Choice("pick", tuple(blocks)))
    plan = net.plan()
    network = SinglePath(plan, (decision,), lambda picks: picks, lambda arch: arch, lambda arch: plan)
    slopes = {"right": 5.0, "nothing": 0.0, "wrong": -5.0}
    weights = {f"edge.{name}.linear.weight": slope * torch.eye(2) for name, slope in slopes.items()}
    return SharedWeights(network, weights | {f"edge.{name}.linear.bias": torch.zeros(2) for name in slopes})


def classified(count: int) -> Images:
    """Two numbers, and the place of the larger."""
    x, plain = torch.eye(2).repeat(count // 2, 1), torch.zeros(1)
    return Images(x, x.argmax(1), x, x.argmax(1), plain, plain + 1, 2, {})


def test_posterior_prefers_what_predicts_well() -> None:
    weights, images = three_classifiers(), classified(24)
    before = {name: weight.clone() for name, weight in weights.weights.items()}
    found = fit_posterior(weights, images, epochs=30, batch_size=8, rate=0.06)
    assert all(torch.equal(before[name], weight) for name, weight in weights.weights.items())
    (p,) = found.probabilities
    assert p[0] > 0.8 and p[0] > p[1] > p[2]
    assert len(found.history) == 30 and sum(found.history[-10:]) > sum(found.history[:10])
    (flat,) = fit_posterior(weights, images, epochs=30, batch_size=8, rate=0.06, likelihood="mean").probabilities
    assert flat[0] > flat[1] > flat[2] > 0.02, "as a mean, the likelihood weighs less against KL"
    one, other = (fit_posterior(weights, images, epochs=2, seed=1) for _ in range(2))
    assert torch.equal(one.logits[0], other.logits[0]) and one.history == other.history


def test_refuses_another_likelihood() -> None:
    with pytest.raises(UserError, match="'sum' or the 'mean' over images, not 'median'"):
        fit_posterior(three_classifiers(), classified(4), likelihood="median")  # type: ignore[arg-type]
