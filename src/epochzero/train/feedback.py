"""A short training as feedback of a search: the accuracy on held-out training images.

    feedback = ShortTraining.of("hnas(epochs=1,images=2000)", spaces["darts_search"], "cifar10.npz")
    ez.search("darts_search", Feedback(feedback, feedback.name), method="hnas", data="cifar10.npz")

The training images are split in two by the seed: a network learns from one half by a recipe of `epochzero train` and is
judged by the other. It uses `images` of them, by default all, and never the file's test images. HNAS does the same in
its search of DARTS, with 10 epochs on half of CIFAR-10's training images.

Shu, Dai, Wu, Low. Unifying and boosting gradient-based training-free neural architecture search. NeurIPS 2022.
arXiv:2201.09785
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from epochzero.errors import UserError
from epochzero.plan.init import generator
from epochzero.quantities import number
from epochzero.spaces.base import AnySpace, Space
from epochzero.train.image_data import Images, load_images
from epochzero.train.images import plan_for, train_architecture
from epochzero.train.recipes import Recipe, recipe_of

WRITTEN = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")
IMAGES = "images"


@dataclass(frozen=True)
class ShortTraining:
    """Trains a network by a recipe; called with an architecture, it gives the accuracy in percent."""

    space: Space
    images: Images
    """with the held-out half as `test_x` and `test_y`"""
    recipe: Recipe
    name: str
    """identifies everything but the network that the accuracy depends on"""
    seed: int = 0
    device: str = "cpu"

    @staticmethod
    def of(text: str, space: AnySpace, data: str | Path, *, seed: int = 0, device: str = "cpu") -> ShortTraining:
        """From the name of a recipe, with changes and the number of images in parentheses."""
        match = WRITTEN.fullmatch(text)
        if match is None:
            raise UserError(f"{text!r} is not a short training: write a recipe such as hnas(epochs=1,images=2000).")
        if not isinstance(space, Space):
            raise UserError(f"The space '{space.name}' gives modules and no plans: they cannot be trained here.")
        changes = dict(map(_change, filter(None, (part.strip() for part in (match[2] or "").split(",")))))
        count = changes.pop(IMAGES, None)
        recipe = recipe_of(match[1], changes)
        images = halved(load_images(data, seed=seed), count, seed)
        plan_for(space, space.smallest(), images, recipe)  # rejects images that do not fit the space
        name = f"{text.replace(' ', '')} on {images.facts['file']} {images.facts['sha256'][:12]}, seed {seed}"
        return ShortTraining(space, images, recipe, name, seed, device)

    def __call__(self, arch: Any) -> float:
        trained = train_architecture(self.space, arch, self.images, self.recipe, seed=self.seed, device=self.device)
        return 100 * float(trained.history[-1]["test_accuracy"])


def halved(images: Images, count: int | float | str | None, seed: int) -> Images:
    """Splits the training images, or `count` of them, in halves: one to train on, the other as test images."""
    total = len(images.x)
    count = total if count is None else count
    if not isinstance(count, int) or not 4 <= count <= total:
        raise UserError(f"A short training takes 4 to {total:,} images of these data, not {count}.")
    order = torch.randperm(total, generator=generator(seed, "short training"))[:count]
    train, test = order[: count // 2], order[count // 2 :]
    facts = images.facts | {"train": len(train), "test": len(test), "test_is": f"training images held out by {seed}"}
    return images.split(train, test, facts)


def _change(text: str) -> tuple[str, int | float | str]:
    key, equals, value = (piece.strip() for piece in text.partition("="))
    if not equals or not value:
        raise UserError(f"{text!r} does not change a recipe: write key=value.")
    return key, number(value)
