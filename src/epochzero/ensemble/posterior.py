r"""The posterior over architectures: a distribution over the decisions of a space, learnt with shared weights.

    p_a(A) = prod_i softmax(a_i / t)[A_i]                                                          (5.6, 5.7)
    max_a  E_{A ~ p_a} [log p(D | A)] - KL[p_a || uniform]                                         (5.4)

log p(D | A) is minus the cross-entropy of A with its inherited weights, summed over the held-out images D; with a mean
instead, KL weighs |D| times more, and keeps the distribution near uniform. With p independent
over decisions of k_i options, KL = sum_i sum_o p_i(o) log(k_i p_i(o)). One architecture is drawn for each step with
Gumbel noise, all of its nodes with two inputs in DARTS, and the gradient passes straight through the sample
(`supernet/gumbel.py`); Adam, rate .01, weight decay 3e-4, 20 epochs.

The posterior of NESBS is learnt after the shared weights were trained on uniform paths (`fit_posterior`). Its baseline
is learnt during the training, whose paths it draws itself, without the KL, as in SNAS and GDAS (`best_response`).

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
Jang, Gu, Poole. Categorical reparameterization with Gumbel-softmax. ICLR 2017. arXiv:1611.01144
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from epochzero.errors import UserError
from epochzero.plan import execute, generator
from epochzero.progress import Progress, silent
from epochzero.supernet.gumbel import noise
from epochzero.supernet.single_path import Picks, SharedWeights, SinglePath
from epochzero.train.image_data import Images
from epochzero.train.recipes import Recipe
from epochzero.train.step import Recording
from epochzero.train.supernet import SUPERNET, train_supernet

ABSENT = -1e4
"""the logit of an option that a decision lacks: its probability is 0, and gradients stay finite"""
Likelihood = Literal["sum", "mean"]


def check_likelihood(likelihood: str) -> None:
    """UserError for any other value."""
    if likelihood not in get_args(Likelihood):
        raise UserError(f"A likelihood is the 'sum' or the 'mean' over images, not {likelihood!r}.")


@dataclass(frozen=True, eq=False)
class Posterior:
    """Independent decisions, each with a probability for every option."""

    logits: tuple[Tensor, ...]
    """[options] for each decision"""
    temperature: float = 1.0
    history: tuple[float, ...] = ()
    """the lower bound (5.4), mean over the steps of each epoch"""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise UserError(f"A posterior needs a temperature above 0, not {self.temperature:g}.")

    @cached_property
    def probabilities(self) -> list[Tensor]:
        return [torch.softmax(own.double() / self.temperature, 0) for own in self.logits]

    @property
    def kl(self) -> float:
        """The divergence from the uniform distribution."""
        return float(sum(-torch.special.entr(p).sum() + torch.tensor(len(p)).log() for p in self.probabilities))

    @property
    def most_probable(self) -> Picks:
        return tuple(int(p.argmax()) for p in self.probabilities)

    def at(self, temperature: float) -> Posterior:
        """The same logits at another temperature: higher is flatter, lower is sharper."""
        return replace(self, temperature=temperature)

    def sample(self, rng: Generator) -> Picks:
        return tuple(int(torch.multinomial(p, 1, generator=rng)) for p in self.probabilities)

    def log_probability(self, picks: Picks) -> float:
        return float(sum(p[pick].log() for p, pick in zip(self.probabilities, picks, strict=True)))

    def as_json(self) -> dict[str, Any]:
        logits = [own.tolist() for own in self.logits]
        return {"logits": logits, "temperature": self.temperature, "history": list(self.history)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Posterior:
        return cls(tuple(map(torch.tensor, given["logits"])), given["temperature"], tuple(given["history"]))


def elbo(
    likelihood_of: Tensor, logits: Tensor, absent: Tensor, images: int, likelihood: Likelihood = "sum", kl: bool = True
) -> Tensor:
    """The lower bound (5.4) from a mean log-likelihood and logits [decisions, options]."""
    total = likelihood_of * images if likelihood == "sum" else likelihood_of
    if not kl:
        return total
    log_p = torch.log_softmax(logits.masked_fill(absent, ABSENT), 1)
    counts = (~absent).sum(1, keepdim=True)
    return total - (log_p.exp() * (log_p + counts.log())).sum()


def straight_through_sample(logits: Tensor, absent: Tensor, gumbel: Tensor, tau: float = 1.0) -> Tensor:
    """One option of each decision [decisions, options], as ones and zeros with the gradient of the softmax."""
    noisy = logits.masked_fill(absent, ABSENT) + gumbel
    soft = torch.softmax(noisy / tau, 1)
    hard = torch.zeros_like(soft).scatter_(1, noisy.argmax(1, keepdim=True), 1.0)
    return hard + soft - soft.detach()


class _Learner:
    """The logits of all decisions, in one tensor on the images' device, and their optimiser."""

    def __init__(
        self,
        network: SinglePath,
        images: Images,
        *,
        rate: float,
        decay: float,
        tau: float,
        likelihood: Likelihood,
        kl: bool,
        record: bool,
    ) -> None:
        check_likelihood(likelihood)
        self.network, self.tau, self.likelihood, self.kl = network, tau, likelihood, kl
        self.x, self.y = images.standardised(images.test_x), images.test_y  # [N, C, H, W], [N]
        counts = [len(decision.options) for decision in network.decisions]
        self.alpha = torch.zeros(len(counts), max(counts), device=self.x.device, requires_grad=True)
        self.absent = torch.arange(max(counts)) >= torch.tensor(counts)[:, None]
        self.absent = self.absent.to(self.x.device)
        self.vectors = [torch.tensor(decision.vectors, device=self.x.device) for decision in network.decisions]
        self.optimiser = torch.optim.Adam([self.alpha], lr=rate, betas=(0.9, 0.999), weight_decay=decay)
        self.plan = network.relaxed.with_statistics("tracked")
        params = network.relaxed.weights.items()
        self.scratch = {name: torch.zeros(p.shape, device=self.x.device) for name, p in params if not p.trainable}
        """running statistics that nobody reads: norms use those of the batch"""
        self.record = record and self.x.is_cuda
        """all steps have the same shapes: on a GPU they are played from a recording, which is made with the first"""
        self.recording: Recording | None = None

    @property
    def posterior(self) -> Posterior:
        rows = zip(self.alpha.detach().double().cpu(), self.network.decisions, strict=True)
        return Posterior(tuple(row[: len(decision.options)].clone() for row, decision in rows))

    def step(self, weights: Mapping[str, Tensor], chosen: Tensor, rng: Generator) -> Tensor:
        """One step up the lower bound on these images; returns the estimate before the step.

        The weights have to be the same tensors in all steps; their values may change.
        """
        gumbel = noise(self.alpha.numel(), rng).view(self.alpha.shape).to(self.alpha)
        given = self.x[chosen], self.y[chosen], gumbel
        if self.record:
            self.recording = self.recording or Recording(partial(self._ascent, weights))
            gradient, bound = self.recording(given)
        else:
            gradient, bound = self._ascent(weights, *given)
        self.alpha.grad = -gradient
        self.optimiser.step()
        return bound.clone()

    def _ascent(self, weights: Mapping[str, Tensor], x: Tensor, y: Tensor, gumbel: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of the lower bound by the logits [decisions, options], and the bound."""
        sample = straight_through_sample(self.alpha, self.absent, gumbel, self.tau)  # [decisions, options]
        vectors = [row[: len(own)] @ own for row, own in zip(sample, self.vectors, strict=True)]
        logits = execute(self.plan, {**weights, **self.scratch}, (x, *vectors))  # [B, classes]
        mean = -F.cross_entropy(logits, y)
        bound = elbo(mean, self.alpha, self.absent, len(self.y), self.likelihood, self.kl)
        (gradient,) = torch.autograd.grad(bound, [self.alpha])
        return gradient, bound.detach()


def fit_posterior(
    shared: SharedWeights,
    images: Images,
    *,
    epochs: int = 20,
    batch_size: int = 128,
    rate: float = 0.01,
    decay: float = 3e-4,
    tau: float = 1.0,
    likelihood: Likelihood = "sum",
    seed: int = 0,
    record: bool = True,
    progress: Progress = silent,
) -> Posterior:
    """The posterior given the held-out images `images.test_x`; the shared weights stay unchanged.

    `record`: on a GPU, record the first step and play it from then on.
    """
    learner = _Learner(
        shared.network,
        images.to(shared.device),
        rate=rate,
        decay=decay,
        tau=tau,
        likelihood=likelihood,
        kl=True,
        record=record,
    )
    size = min(batch_size, len(learner.y))
    steps, history = len(learner.y) // size, list[float]()
    for epoch in range(epochs):
        progress(epoch, epochs, "posterior")
        rng = generator(seed, "posterior", epoch)
        order = torch.randperm(len(learner.y), generator=rng).to(shared.device)
        bounds = [learner.step(shared.weights, order[i * size : (i + 1) * size], rng) for i in range(steps)]
        history.append(float(torch.stack(bounds).mean()))
    return replace(learner.posterior, history=tuple(history))


class BestResponse:
    """Draws the paths of a training from the distribution learnt so far."""

    def __init__(self, learner: _Learner, size: int, every: int) -> None:
        self.learner, self.size, self.every = learner, min(size, len(learner.y)), every
        self.posterior = learner.posterior
        """the current one, read from the device after each of its steps"""

    def path(self, rng: Generator) -> Picks:
        return self.posterior.sample(rng)

    def learn(self, weights: Mapping[str, Tensor], step: int, rng: Generator) -> None:
        if step % self.every == 0:
            chosen = torch.randperm(len(self.learner.y), generator=rng)[: self.size].to(self.learner.y.device)
            self.learner.step(weights, chosen, rng)
            self.posterior = self.learner.posterior

    def state(self) -> dict[str, Any]:
        return {"alpha": self.learner.alpha.detach(), "optimiser": self.learner.optimiser.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            self.learner.alpha.copy_(state["alpha"])
        self.learner.optimiser.load_state_dict(state["optimiser"])
        self.posterior = self.learner.posterior


def best_response(
    network: SinglePath,
    images: Images,
    recipe: Recipe = SUPERNET,
    *,
    rate: float = 0.01,
    decay: float = 3e-4,
    tau: float = 1.0,
    every: int = 1,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    keep_every: int = 1,
    record: bool = True,
    progress: Progress = silent,
) -> tuple[SharedWeights, Posterior]:
    """Shared weights, and the posterior that was learnt with them, one step for every `every` steps of theirs."""
    learner = _Learner(
        network, images.to(device), rate=rate, decay=decay, tau=tau, likelihood="mean", kl=False, record=record
    )
    rival = BestResponse(learner, recipe.batch_size, every)
    shared = train_supernet(
        network,
        images,
        recipe,
        seed=seed,
        device=device,
        folder=folder,
        keep_every=keep_every,
        sampler=rival,
        progress=progress,
    )
    return shared, learner.posterior
