r"""Trains the weights that the networks of a space share: each step on one path, drawn uniformly.

    network = shared(spaces["nb201"], 10, (3, 32, 32))
    images = held_out(load_images("cifar10.npz"))
    weights = train_supernet(network, images, seed=0, folder=Path("run"))

Stochastic gradient descent as in NESBS: 50 epochs, rate .1 falling to 0 as a cosine, momentum .9, weight decay 3e-4,
batches of 128; weights that a path does not use stay as they are, without decay or momentum. Everything random in an
epoch comes from the seed and the epoch's number. Weights, momentum and the path sampler's state are therefore enough to
resume: on a CPU, a training that was killed and resumed ends with the same bits.

A path sampler may replace the uniform draw, and learn after each step.

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.nn.utils import get_total_norm
from torch.optim.sgd import sgd

from epochzero.engine import foreach
from epochzero.errors import UserError
from epochzero.plan import execute, generator
from epochzero.progress import Progress, silent
from epochzero.supernet.single_path import Picks, SharedWeights, SinglePath
from epochzero.train.augment import crop, flip
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import Images
from epochzero.train.recipes import Recipe

SUPERNET = Recipe(epochs=50, batch_size=128, learning_rate=0.1, weight_decay=3e-4, clip=5)
FORMAT = "epochzero supernet 2"


def held_out(images: Images, share: float = 0.7, seed: int = 0) -> Images:
    """Splits the training images: this share to train on, the others in place of the test images."""
    count = round(share * len(images.y))
    if not 2 <= count < len(images.y):
        raise UserError(f"A share of {share:g} of {len(images.y)} images leaves too few on one side: give another.")
    order = torch.randperm(len(images.y), generator=generator(seed, "held out")).to(images.y.device)
    first, rest = order[:count], order[count:]
    facts = {"of": images.facts, "share": share, "seed": seed}
    return images.split(first, rest, facts)


class PathSampler(Protocol):
    """Draws the paths of a training, and may learn from it."""

    def path(self, rng: Generator) -> Picks:
        """The path of the next step."""

    def learn(self, weights: Mapping[str, Tensor], step: int, rng: Generator) -> None:
        """Called with the weights after each step."""

    def state(self) -> dict[str, Any]:
        """The state to resume from."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from a state."""


class Uniform:
    """Draws every path with the same probability."""

    def __init__(self, network: SinglePath) -> None:
        self.path = network.uniform

    def learn(self, weights: Mapping[str, Tensor], step: int, rng: Generator) -> None:
        """Does nothing."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there is no state."""


def train_supernet(
    network: SinglePath,
    images: Images,
    recipe: Recipe = SUPERNET,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    keep_every: int = 1,
    sampler: PathSampler | None = None,
    progress: Progress = silent,
) -> SharedWeights:
    """Trains shared weights on `images.x`. With a folder, an interrupted training resumes.

    A checkpoint is written after every `keep_every` epochs and after the last. Only the recipe's rates, clipping,
    smoothing, crops and flips are used.
    """
    run = _Training(network, images.to(device), recipe, seed, sampler or Uniform(network))
    identity = {
        "network": dict(network.facts),
        "recipe": recipe.as_json(),
        "seed": seed,
        "data": images.facts,
        "paths": type(run.sampler).__name__,
    }
    kept = None if folder is None else Checkpoints(folder)
    done = 0
    if kept is not None:
        kept.folder.mkdir(parents=True, exist_ok=True)
        if (state := kept.last()) is not None:
            if state.get("format") != FORMAT or state.get("identity") != identity:
                raise UserError(f"The folder '{folder}' holds another training: choose another folder.")
            run.restore(state)
            done = state["epoch"]
    for epoch in range(done, recipe.epochs):
        run.epoch(epoch, progress)
        if kept is not None and ((epoch + 1) % keep_every == 0 or epoch + 1 == recipe.epochs):
            kept.write(epoch + 1, {"format": FORMAT, "identity": identity, "epoch": epoch + 1} | run.state())
    return run.shared


class _Training:
    """Shared weights, their optimiser and the data, on one device."""

    def __init__(self, network: SinglePath, images: Images, recipe: Recipe, seed: int, sampler: PathSampler) -> None:
        self.network, self.images, self.recipe, self.seed, self.sampler = network, images, recipe, seed, sampler
        self.device = images.x.device
        self.shared = SharedWeights(network, network.draw(seed, self.device))
        self.trainable = {name: w for name, w in self.shared.weights.items() if w.requires_grad}
        self.size = min(recipe.batch_size, len(images.y))
        self.steps = len(images.y) // self.size
        self.momentum = {name: torch.zeros_like(weight) for name, weight in self.trainable.items()}

    def state(self) -> dict[str, Any]:
        weights = {name: weight.detach() for name, weight in self.shared.weights.items()}
        return {
            "weights": weights,
            "momentum": self.momentum,
            "companion": self.sampler.state(),
            "history": self.shared.history,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self.shared.weights.items():
                weight.copy_(state["weights"][name])
        for name, momentum in self.momentum.items():
            momentum.copy_(state["momentum"][name])
        self.sampler.restore(state["companion"])
        self.shared.history = list(state["history"])

    def epoch(self, number: int, progress: Progress) -> None:
        start, total = time.perf_counter(), self.recipe.epochs * self.steps
        rng = generator(self.seed, "supernet", number)
        order = torch.randperm(len(self.images.y), generator=rng).to(self.device)
        loss, correct = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for step in range(self.steps):
            at = number * self.steps + step
            progress(at, total, f"epoch {number + 1}")
            chosen, rate = order[step * self.size : (step + 1) * self.size], self.recipe.rate(at, self.steps)
            step_loss, step_correct = self._step(self.sampler.path(rng), chosen, rate, rng)
            loss += step_loss
            correct += step_correct
            self.sampler.learn(self.shared.weights, at, rng)
        if not math.isfinite(float(loss)):
            raise UserError(f"The loss became NaN or infinite in epoch {number + 1}: lower the learning_rate.")
        self.shared.history.append(
            {
                "epoch": number + 1,
                "loss": float(loss) / self.steps,
                "accuracy": float(correct) / (self.steps * self.size),
                "learning_rate": rate,
                "seconds": time.perf_counter() - start,
            }
        )
        progress((number + 1) * self.steps, total, f"epoch {number + 1}  loss {float(loss) / self.steps:.3f}")

    def _step(self, picks: Picks, chosen: Tensor, rate: float, rng: Generator) -> tuple[Tensor, Tensor]:
        """One step on the weights of one path; all other weights stay untouched."""
        x, y = self.images.x[chosen], self.images.y[chosen]
        x = crop(x, self.recipe.pad, rng) if self.recipe.pad else x
        x = self.images.standardised(flip(x, rng) if self.recipe.flip else x)  # [B, C, H, W]
        plan = self.network.path(picks, "tracked")
        logits = execute(plan, self.shared.weights, (x,))  # [B, classes]
        loss = F.cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing)
        used = [name for name in plan.weights if name in self.trainable]
        gradients = torch.autograd.grad(loss, [self.trainable[name] for name in used], allow_unused=True)
        self._descend({name: g for name, g in zip(used, gradients, strict=True) if g is not None}, rate)
        return loss.detach(), (logits.argmax(1) == y).sum()

    @torch.no_grad()
    def _descend(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        recipe, along = self.recipe, list(gradients.values())
        if recipe.clip:
            shrink = (recipe.clip / (get_total_norm(along) + 1e-6)).clamp_max(1)
            foreach.mul_(along, shrink)
        sgd(
            [self.trainable[name] for name in gradients],
            along,
            [self.momentum[name] for name in gradients],
            foreach=self.device.type == "cuda",
            lr=rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            dampening=0,
            maximize=False,
        )
