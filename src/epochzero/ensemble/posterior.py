r"""The posterior over architectures: a distribution over the decisions of a space, learnt with shared weights.

    p_a(A) = prod_i softmax(a_i / t)[A_i]                                                          (5.6, 5.7)
    max_a  E_{A ~ p_a} [log p(D | A)] - KL[p_a || uniform]                                         (5.4)

log p(D | A) is minus the cross-entropy of A with its inherited weights, summed over the held-out images D; with a mean
instead, KL weighs |D| times more, and keeps the distribution near uniform. With p independent
over decisions of k_i options, KL = sum_i sum_o p_i(o) log(k_i p_i(o)). One architecture is drawn for each step with
Gumbel noise, all of its nodes with two inputs in DARTS, and the gradient passes straight through the sample
(`supernet/gumbel.py`); Adam, rate .01, weight decay 3e-4, 20 epochs, after the shared weights were trained on uniform
paths.

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
Jang, Gu, Poole. Categorical reparameterization with Gumbel-softmax. ICLR 2017. arXiv:1611.01144
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from epochzero.errors import UserError
from epochzero.plan import execute, generator
from epochzero.progress import Progress, silent
from epochzero.supernet.gumbel import noise
from epochzero.supernet.single_path import Picks, SharedWeights, SinglePath
from epochzero.train.image_data import Images
from epochzero.train.step import Recording

RATE, DECAY = 0.01, 3e-4
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

    def sample(self, rng: Generator) -> Picks:
        return tuple(int(torch.multinomial(p, 1, generator=rng)) for p in self.probabilities)


def divergence(logits: Tensor, absent: Tensor) -> Tensor:
    """The KL divergence from the uniform distribution, for logits [decisions, options]."""
    log_p = torch.log_softmax(logits.masked_fill(absent, ABSENT), 1)
    counts = (~absent).sum(1, keepdim=True)
    return (log_p.exp() * (log_p + counts.log())).sum()


def straight_through_sample(logits: Tensor, absent: Tensor, gumbel: Tensor, tau: float = 1.0) -> Tensor:
    """One option of each decision [decisions, options], as ones and zeros with the gradient of the softmax."""
    noisy = logits.masked_fill(absent, ABSENT) + gumbel
    soft = torch.softmax(noisy / tau, 1)
    hard = torch.zeros_like(soft).scatter_(1, noisy.argmax(1, keepdim=True), 1.0)
    return hard + soft - soft.detach()


class Learner:
    """The logits of all decisions, in one tensor on the images' device, and their optimiser."""

    def __init__(
        self,
        network: SinglePath,
        images: Images,
        rate: float = RATE,
        likelihood: Likelihood = "sum",
        record: bool = True,
    ) -> None:
        """`record`: on a GPU, record the first step, since all have the same shapes, and play it from then on."""
        check_likelihood(likelihood)
        self.network, self.likelihood = network, likelihood
        self.x, self.y = images.standardised(images.test_x), images.test_y  # [N, C, H, W], [N]
        counts = [len(decision.options) for decision in network.decisions]
        self.alpha = torch.zeros(len(counts), max(counts), device=self.x.device, requires_grad=True)
        self.absent = torch.arange(max(counts)) >= torch.tensor(counts)[:, None]
        self.absent = self.absent.to(self.x.device)
        self.vectors = [torch.tensor(decision.vectors, device=self.x.device) for decision in network.decisions]
        self.optimiser = torch.optim.Adam([self.alpha], lr=rate, weight_decay=DECAY)
        self.plan = network.relaxed.with_statistics("tracked")
        params = network.relaxed.weights.items()
        self.scratch = {name: torch.zeros(p.shape, device=self.x.device) for name, p in params if not p.trainable}
        """running statistics that nobody reads: norms use those of the batch"""
        self.record = record and self.x.is_cuda
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
        sample = straight_through_sample(self.alpha, self.absent, gumbel)  # [decisions, options]
        vectors = [row[: len(own)] @ own for row, own in zip(sample, self.vectors, strict=True)]
        logits = execute(self.plan, {**weights, **self.scratch}, (x, *vectors))  # [B, classes]
        bound = self.bound(-F.cross_entropy(logits, y))
        (gradient,) = torch.autograd.grad(bound, [self.alpha])
        return gradient, bound.detach()

    def bound(self, mean: Tensor) -> Tensor:
        """The lower bound (5.4) from the mean log-likelihood of an image."""
        total = mean * len(self.y) if self.likelihood == "sum" else mean
        return total - divergence(self.alpha, self.absent)


def fit_posterior(
    shared: SharedWeights,
    images: Images,
    *,
    epochs: int = 20,
    batch_size: int = 128,
    rate: float = RATE,
    likelihood: Likelihood = "sum",
    seed: int = 0,
    record: bool = True,
    progress: Progress = silent,
) -> Posterior:
    """The posterior given the held-out images `images.test_x`; the shared weights stay unchanged."""
    learner = Learner(shared.network, images.to(shared.device), rate, likelihood, record)
    size = min(batch_size, len(learner.y))
    steps, history = len(learner.y) // size, list[float]()
    for epoch in range(epochs):
        progress(epoch, epochs, "posterior")
        rng = generator(seed, "posterior", epoch)
        order = torch.randperm(len(learner.y), generator=rng).to(shared.device)
        bounds = [learner.step(shared.weights, order[i * size : (i + 1) * size], rng) for i in range(steps)]
        history.append(float(torch.stack(bounds).mean()))
    return replace(learner.posterior, history=tuple(history))
