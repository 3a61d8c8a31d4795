r"""A posterior of architectures learnt during the training whose paths it draws, without KL, as in SNAS and GDAS.

    p_a maximises E_{A ~ p_a} [log p(D | A)] with the present weights, one step for every few of theirs

The baseline of the posterior that NESBS learns after the training (`epochzero.ensemble.posterior`).

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from epochzero.ensemble.posterior import RATE, Learner, Posterior
from epochzero.progress import Progress, silent
from epochzero.supernet.single_path import Picks, SharedWeights, SinglePath
from epochzero.train.image_data import Images
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import SUPERNET, SupernetTraining


def as_json(posterior: Posterior) -> dict[str, Any]:
    logits = [own.tolist() for own in posterior.logits]
    return {"logits": logits, "temperature": posterior.temperature, "history": list(posterior.history)}


def from_json(given: Mapping[str, Any]) -> Posterior:
    return Posterior(tuple(map(torch.tensor, given["logits"])), given["temperature"], tuple(given["history"]))


def most_probable(posterior: Posterior) -> Picks:
    return tuple(int(p.argmax()) for p in posterior.probabilities)


class _Likely(Learner):
    """Climbs the mean likelihood alone."""

    def bound(self, mean: Tensor) -> Tensor:
        return mean


class BestResponse(SupernetTraining):
    """Draws the paths of a training from the distribution learnt so far."""

    paths = "BestResponse"

    def __init__(
        self, network: SinglePath, images: Images, recipe: Recipe, seed: int, learner: Learner, every: int
    ) -> None:
        super().__init__(network, images, recipe, seed)
        self.learner, self.every = learner, every
        self.answers = min(recipe.batch_size, len(learner.y))
        """held-out images of a step of the posterior"""
        self.posterior = learner.posterior
        """the current one, read from the device after each of its steps"""

    def path(self, rng: Generator) -> Picks:
        return self.posterior.sample(rng)

    def step(self, number: int, chosen: Tensor, rate: float, rng: Generator) -> tuple[Tensor, Tensor]:
        measured = super().step(number, chosen, rate, rng)
        if number % self.every == 0:
            held_out = torch.randperm(len(self.learner.y), generator=rng)[: self.answers]
            self.learner.step(self.shared.weights, held_out.to(self.learner.y.device), rng)
            self.posterior = self.learner.posterior
        return measured

    def state(self) -> dict[str, Any]:
        companion = {"alpha": self.learner.alpha.detach(), "optimiser": self.learner.optimiser.state_dict()}
        return super().state() | {"companion": companion}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        with torch.no_grad():
            self.learner.alpha.copy_(state["companion"]["alpha"])
        self.learner.optimiser.load_state_dict(state["companion"]["optimiser"])
        self.posterior = self.learner.posterior


def best_response(
    network: SinglePath,
    images: Images,
    recipe: Recipe = SUPERNET,
    *,
    rate: float = RATE,
    every: int = 1,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    keep_every: int = 1,
    record: bool = True,
    progress: Progress = silent,
) -> tuple[SharedWeights, Posterior]:
    """Shared weights, and the posterior that was learnt with them, one step for every `every` steps of theirs."""
    images = images.to(device)
    learner = _Likely(network, images, rate, "mean", record)
    run = BestResponse(network, images, recipe, seed, learner, every)
    return run.trained(folder, keep_every, progress), learner.posterior
