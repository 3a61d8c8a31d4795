r"""Trains the weights that the networks of a space share: each step on one path, drawn uniformly.

    network = shared(spaces["nb201"], 10, (3, 32, 32))
    images = held_out(load_images("cifar10.npz"))
    weights = train_supernet(network, images, seed=0, folder=Path("run"))

Stochastic gradient descent as in NESBS: 50 epochs, rate .1 falling to 0 as a cosine, momentum .9, weight decay 3e-4,
batches of 128; weights that a path does not use stay as they are, without decay or momentum. Everything random in an
epoch comes from the seed and the epoch's number. Weights and momentum are therefore enough to resume: on a CPU, a
training that was killed and resumed ends with the same bits.

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def train_supernet(
    network: SinglePath,
    images: Images,
    recipe: Recipe = SUPERNET,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    progress: Progress = silent,
) -> SharedWeights:
    """Trains shared weights on `images.x`. With a folder, every epoch is kept there, and a stopped training resumes.

    Only the recipe's rates, clipping, smoothing, crops and flips are used.
    """
    return SupernetTraining(network, images.to(device), recipe, seed).trained(folder, progress=progress)


class SupernetTraining:
    """Shared weights, their optimiser and the data, on one device."""

    paths = "Uniform"
    """the way paths are drawn: part of a checkpoint's identity"""

    def __init__(self, network: SinglePath, images: Images, recipe: Recipe, seed: int) -> None:
        self.network, self.images, self.recipe, self.seed = network, images, recipe, seed
        self.device = images.x.device
        self.shared = SharedWeights(network, network.draw(seed, self.device))
        self.trainable = {name: w for name, w in self.shared.weights.items() if w.requires_grad}
        self.size = min(recipe.batch_size, len(images.y))
        self.steps = len(images.y) // self.size
        self.momentum = {name: torch.zeros_like(weight) for name, weight in self.trainable.items()}

    def trained(self, folder: Path | None, keep_every: int = 1, progress: Progress = silent) -> SharedWeights:
        """The weights after all epochs; a checkpoint is written after every `keep_every` and after the last."""
        identity = {
            "network": dict(self.network.facts),
            "recipe": self.recipe.as_json(),
            "seed": self.seed,
            "data": self.images.facts,
            "paths": self.paths,
        }
        kept = None if folder is None else Checkpoints(folder)
        done = 0
        if kept is not None:
            kept.folder.mkdir(parents=True, exist_ok=True)
            if (state := kept.last()) is not None:
                if state.get("format") != FORMAT or state.get("identity") != identity:
                    raise UserError(f"The folder '{folder}' holds another training: choose another folder.")
                self.restore(state)
                done = state["epoch"]
        for epoch in range(done, self.recipe.epochs):
            self.epoch(epoch, progress)
            if kept is not None and ((epoch + 1) % keep_every == 0 or epoch + 1 == self.recipe.epochs):
                kept.write(epoch + 1, {"format": FORMAT, "identity": identity, "epoch": epoch + 1} | self.state())
        return self.shared

    def state(self) -> dict[str, Any]:
        weights = {name: weight.detach() for name, weight in self.shared.weights.items()}
        return {"weights": weights, "momentum": self.momentum, "companion": {}, "history": self.shared.history}

    def restore(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self.shared.weights.items():
                weight.copy_(state["weights"][name])
        for name, momentum in self.momentum.items():
            momentum.copy_(state["momentum"][name])
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
            step_loss, step_correct = self.step(at, chosen, rate, rng)
            loss += step_loss
            correct += step_correct
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

    def path(self, rng: Generator) -> Picks:
        """The path of the next step."""
        return self.network.uniform(rng)

    def step(self, number: int, chosen: Tensor, rate: float, rng: Generator) -> tuple[Tensor, Tensor]:
        """One step on the weights of one path; all other weights stay untouched."""
        picks = self.path(rng)
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
