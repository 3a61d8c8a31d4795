"""NESBS: the relaxed posterior against brute force, decoding, and the choice of the best candidate."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from epochzero.ensemble.metrics import nll
from epochzero.ensemble.nesbs import (
    GRID,
    RelaxedPosterior,
    evaluated,
    monte_carlo,
    search,
    svgd_ensembles,
)
from epochzero.ensemble.posterior import Posterior
from epochzero.errors import UserError
from epochzero.plan import generator

SHARP = Posterior((torch.tensor([0.0, 4.0, 0.0]), torch.tensor([3.0, 0.0])))
FLAT = Posterior((torch.zeros(3), torch.zeros(2), torch.zeros(4)))


def mixture(p: Tensor) -> MixtureSameFamily:
    """(5.8) for one decision, as torch has it."""
    k = len(p)
    parts = MultivariateNormal(torch.eye(k, dtype=torch.float64), k * torch.eye(k, dtype=torch.float64))
    return MixtureSameFamily(Categorical(p), parts)


def test_relaxed_posterior_is_the_mixture_of_gaussians() -> None:
    posterior = Posterior((torch.tensor([0.3, -1.0, 2.0]), torch.tensor([0.0, 1.0])), temperature=0.5)
    relaxed = RelaxedPosterior(posterior)
    x = relaxed.start(generator(0, "x"), 5)  # [5, 2 * 3]
    assert (x.view(5, 2, 3)[:, 1, 2] == 0).all(), "an option that is not there stays at 0"
    x.requires_grad_()
    first, second = (mixture(p) for p in posterior.probabilities)
    expected = first.log_prob(x[:, :3]) + second.log_prob(x[:, 3:5])  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(expected.sum(), [x])
    assert torch.allclose(relaxed.score(x.detach()), gradient)


def test_decoding_is_the_nearest_one_hot_vector() -> None:
    relaxed, rng = RelaxedPosterior(FLAT), generator(1, "decode")
    for x in relaxed.start(rng, 20):
        nearest = []
        for row, count in zip(x.view(relaxed.shape), (3, 2, 4), strict=True):
            distances = [(row[:count] - torch.eye(count, dtype=torch.float64)[o]).norm() for o in range(count)]
            nearest.append(min(range(count), key=lambda o: distances[o]))
        assert relaxed.decode(x) == tuple(nearest)
    low = torch.tensor([[-5.0, -4.0, -6.0, 0], [-1.0, -2.0, 0, 0], [-1.0, -1.0, -1.0, -0.5]], dtype=torch.float64)
    assert relaxed.decode(low.flatten()) == (1, 0, 3), "0 of an absent option is not the largest"


def test_monte_carlo_follows_the_posterior() -> None:
    drawn = [picks for _ in range(200) for picks in monte_carlo(SHARP, 3, generator(_, "mc"))]
    expected = math.exp(4) / (math.exp(4) + 2) * math.exp(3) / (math.exp(3) + 1)
    assert sum(picks == (1, 0) for picks in drawn) / len(drawn) == pytest.approx(expected, abs=0.06)


def test_one_particle_is_the_most_probable_architecture_for_any_delta() -> None:
    """Proposition 5.2, on a relaxed posterior."""
    ensembles = svgd_ensembles(SHARP, 1, [-2.0, 0.0, 1.0], generator(0, "svgd"), steps=300)
    assert ensembles == [((1, 0),)] * 3


def test_the_larger_delta_the_more_different_members() -> None:
    posterior = Posterior(tuple(torch.randn(4, generator=generator(2, i)) for i in range(12)))
    deltas = [delta for delta in (-1.5, 0.0, 1.0) for _ in range(6)]
    ensembles = svgd_ensembles(posterior, 3, deltas, generator(0, "svgd"), steps=300)
    differing = [sum(len(set(column)) - 1 for column in zip(*members, strict=True)) for members in ensembles]
    means = [sum(differing[i : i + 6]) / 6 for i in (0, 6, 12)]
    assert means[0] == 0, "attraction: all members are one"
    assert 0 < means[1] < means[2]


# Search


LABELS = torch.tensor([0, 1, 0, 1])


def predict(picks: tuple[int, ...]) -> Tensor:
    """Option 1 of the first decision is good at the first half, option 0 of it at the second."""
    right = torch.full((4,), 0.4)
    right[2 * (1 - picks[0] % 2) : 2 * (1 - picks[0] % 2) + 2] = 0.9
    return torch.stack([1 - right, right], 1).where(LABELS[:, None] == 1, torch.stack([right, 1 - right], 1))


def test_best_candidate_has_the_lowest_loss_of_the_averaged_prediction() -> None:
    found = search(FLAT, predict, LABELS, sampler="mc", size=2, candidates=12, seed=1)
    assert len(found.tried) == 12
    losses = [nll(torch.stack([predict(p) for p in tried.members]), LABELS) for tried in found.tried]
    assert [tried.loss for tried in found.tried] == pytest.approx(losses)
    assert found.best.loss == min(losses) and found.best.error == 0
    assert {picks[0] % 2 for picks in found.members} == {0, 1}, "the two that are good at different images"


def test_every_architecture_is_predicted_once() -> None:
    asked = []

    def counted(picks: tuple[int, ...]) -> Tensor:
        asked.append(picks)
        return predict(picks)

    search(SHARP, counted, LABELS, size=3, candidates=10)
    assert len(asked) == len(set(asked))


def test_delta_from_a_grid_and_given() -> None:
    found = search(FLAT, predict, LABELS, sampler="svgd", size=2, candidates=2, steps=50)
    assert [tried.delta for tried in found.tried] == [delta for delta in GRID for _ in range(2)]
    given = search(FLAT, predict, LABELS, sampler="svgd", size=2, candidates=3, delta=0.5, steps=50)
    assert {tried.delta for tried in given.tried} == {0.5} and len(given.tried) == 3
    again = search(FLAT, predict, LABELS, sampler="svgd", size=2, candidates=3, delta=0.5, steps=50)
    assert again == given


def test_delta_by_bayesian_optimisation() -> None:
    pytest.importorskip("bayes_opt")
    found = search(FLAT, predict, LABELS, sampler="svgd", size=2, candidates=1, delta="bayes", steps=20)
    assert len(found.tried) == 12
    assert all(tried.delta is not None and -2 <= tried.delta <= 1 for tried in found.tried)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bayes_opt", None)
    with pytest.raises(UserError, match=r"and not from a grid, needs bayes_opt: pip install 'epochzero\[hnas\]'"):
        search(FLAT, predict, LABELS, sampler="svgd", delta="bayes")


def test_evaluated_by_hand() -> None:
    tried = evaluated(((0, 0), (1, 0)), predict, LABELS)
    assert tried.loss == pytest.approx(-math.log(0.65)) and tried.error == 0


def test_refusals() -> None:
    with pytest.raises(UserError, match="at least 1 member and 1 candidate, not 0 and 5"):
        search(FLAT, predict, LABELS, size=0)
    with pytest.raises(UserError, match="by 'mc' or 'svgd', not by 'hmc'"):
        search(FLAT, predict, LABELS, sampler="hmc")  # type: ignore[arg-type]
    for delta in (math.nan, math.inf, -2.01, 1.5):
        with pytest.raises(UserError, match=rf"Delta is a number from -2 to 1, grid or bayes, not {delta:g}\."):
            search(FLAT, predict, LABELS, sampler="svgd", delta=delta)
