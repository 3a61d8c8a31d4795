r"""NESBS: an ensemble drawn from the posterior of architectures, the best of several by inherited weights.

    1  train shared weights on uniform paths             train/supernet.py
    2  learn the posterior p_a on held-out images        ensemble/posterior.py
    3  for t = 1 ... T: draw an ensemble S_t of n architectures, evaluate it with inherited weights
    4  keep the S_t whose averaged prediction has the lowest loss on the held-out images         (algorithm 5.1)

"mc" draws n architectures independently (algorithm 5.2). "svgd" moves n particles up a relaxed posterior, with a
repulsion set by delta (algorithm 5.3, `ensemble/svgd.py`): a decision with k options becomes a point of
R^k with the density

    sum_o p(o) N(x | h_o, k I),    h_o the one-hot vector of option o                              (5.8)

whose log has the gradient (r - x) / k, r = softmax_o(log p(o) + x_o / k). At the end each decision becomes the nearest
one-hot vector (5.9). Particles start from N(0, I). Delta in [-2, 1] is given, or chosen by the same loss: from a grid,
or by Bayesian optimisation (`bayesian-optimization`, an extra).

    chosen = search(posterior, lambda picks: shared.predict(picks, x), y, sampler="svgd", size=3)

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Generator, Tensor

from epochzero.ensemble.metrics import ensemble_error, nll
from epochzero.ensemble.posterior import ABSENT, Posterior
from epochzero.ensemble.svgd import svgd_rd
from epochzero.errors import UserError, needed
from epochzero.plan import generator
from epochzero.supernet.single_path import Picks

Members = tuple[Picks, ...]
Predict = Callable[[Picks], Tensor]
"""probabilities [n, classes] of one architecture for the held-out images"""
GRID = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)
RANGE = (-2.0, 1.0)


@dataclass(frozen=True)
class Tried:
    """An ensemble, and its loss and error with inherited weights."""

    members: Members
    loss: float
    """mean negative log-likelihood of the averaged prediction"""
    error: float
    delta: float | None = None


@dataclass(frozen=True)
class Selected:
    """The best of the ensembles that were tried."""

    best: Tried
    tried: tuple[Tried, ...]

    @property
    def members(self) -> Members:
        return self.best.members


def check_delta(delta: float | str) -> None:
    """UserError for a number outside `RANGE`; "grid" and "bayes" are valid."""
    least, most = RANGE
    if not isinstance(delta, str) and not least <= delta <= most:
        raise UserError(f"Delta is a number from {least:g} to {most:g}, grid or bayes, not {delta:g}.")


def monte_carlo(posterior: Posterior, size: int, rng: Generator) -> Members:
    """Algorithm 5.2; members may be equal."""
    return tuple(posterior.sample(rng) for _ in range(size))


class RelaxedPosterior:
    """The mixture of Gaussians (5.8) over points [..., decisions * options]; options that a decision lacks stay 0."""

    def __init__(self, posterior: Posterior) -> None:
        counts = [len(p) for p in posterior.probabilities]
        self.shape = len(counts), max(counts)
        self.log_p = torch.full(self.shape, ABSENT, dtype=torch.float64)
        for row, p in zip(self.log_p, posterior.probabilities, strict=True):
            row[: len(p)] = p.log().clamp_min(ABSENT)
        self.variance = torch.tensor(counts, dtype=torch.float64)[:, None]  # [decisions, 1]
        self.present = torch.arange(max(counts)) < self.variance

    def start(self, rng: Generator, *shape: int) -> Tensor:
        """Standard normal points [*shape, decisions * options]."""
        drawn = torch.randn(*shape, *self.shape, generator=rng, dtype=torch.float64)
        return (drawn * self.present).flatten(-2)

    def score(self, x: Tensor) -> Tensor:
        """The gradient of the log density."""
        at = x.unflatten(-1, self.shape)  # type: ignore[no-untyped-call]
        nearness = torch.softmax(self.log_p + at / self.variance, -1)
        return torch.as_tensor(((nearness - at) / self.variance).flatten(-2))

    def decode(self, x: Tensor) -> Picks:
        """The nearest one-hot vectors (5.9) of one point [d]."""
        at = x.reshape(self.shape).masked_fill(~self.present, -torch.inf)
        return tuple(at.argmax(1).tolist())


def svgd_ensembles(
    posterior: Posterior, size: int, deltas: Sequence[float], rng: Generator, steps: int = 1000
) -> list[Members]:
    """Algorithm 5.3: one ensemble for each delta, each from its own random start, all computed together."""
    relaxed = RelaxedPosterior(posterior)
    each = torch.tensor(deltas, dtype=torch.float64)[:, None, None]
    particles = svgd_rd(relaxed.score, relaxed.start(rng, len(deltas), size), each, steps)  # [deltas, size, d]
    return [tuple(relaxed.decode(x) for x in ensemble) for ensemble in particles]


def evaluated(members: Members, predict: Predict, labels: Tensor, delta: float | None = None) -> Tried:
    predictions = torch.stack([predict(picks) for picks in members])  # [n, images, classes]
    return Tried(members, nll(predictions, labels), ensemble_error(predictions, labels), delta)


def search(
    posterior: Posterior,
    predict: Predict,
    labels: Tensor,
    *,
    sampler: Literal["mc", "svgd"] = "mc",
    size: int = 3,
    candidates: int = 5,
    delta: float | Literal["grid", "bayes"] = "grid",
    steps: int = 1000,
    seed: int = 0,
) -> Selected:
    """The best of `candidates` ensembles of the given size.

    If delta is to be chosen, each value tried has that many candidates: a grid has 7 values, Bayesian optimisation
    tries 12.
    """
    if size < 1 or candidates < 1:
        raise UserError(f"NESBS takes at least 1 member and 1 candidate, not {size} and {candidates}.")
    check_delta(delta)
    predict, rng = lru_cache(maxsize=None)(predict), generator(seed, "nesbs", sampler)
    if sampler == "mc":
        drawn = [monte_carlo(posterior, size, rng) for _ in range(candidates)]
        return _best([evaluated(members, predict, labels) for members in drawn])
    if sampler != "svgd":
        raise UserError(f"NESBS samples by 'mc' or 'svgd', not by {sampler!r}.")

    def tried(deltas: Sequence[float]) -> list[Tried]:
        drawn = svgd_ensembles(posterior, size, deltas, rng, steps)
        return [evaluated(members, predict, labels, d) for members, d in zip(drawn, deltas, strict=True)]

    if delta == "bayes":
        return _best(bayesian(lambda at: tried([at] * candidates), seed))
    grid = GRID if delta == "grid" else (float(delta),)
    return _best(tried([at for at in grid for _ in range(candidates)]))


def bayesian(try_at: Callable[[float], list[Tried]], seed: int = 0, *, first: int = 4, then: int = 8) -> list[Tried]:
    """All ensembles that were tried in the search for the delta in [-2, 1] with the lowest loss."""
    bayes_opt = needed("bayes_opt", "Choosing delta by Bayesian optimisation, and not from a grid,", "hnas")
    all_tried: list[Tried] = []

    def worth(delta: float) -> float:
        new = try_at(float(delta))
        all_tried.extend(new)
        return -min(one.loss for one in new)

    optimiser = bayes_opt.BayesianOptimization(worth, {"delta": RANGE}, random_state=seed % 2**32, verbose=0)
    optimiser.maximize(init_points=first, n_iter=then)
    return all_tried


def _best(tried: Sequence[Tried]) -> Selected:
    return Selected(min(tried, key=lambda one: one.loss), tuple(tried))
