"""Trains a network on images, with a recipe, and goes on exactly where it was stopped.

    images = load_images("cifar10.npz")
    plan = plan_for(space, arch, images, recipe)
    trained = train(plan, images, recipe, folder=Path("run"), seed=0)

All that is random in an epoch comes from a generator of its own, seeded by the training's seed and the epoch's number,
and the learning rate is a function of the step. So weights and momentum after an epoch are all that is needed to go on:
killed and resumed, a training ends with the very same bits on a CPU. On a GPU it runs in mixed precision (bfloat16).
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.plan.init import generator
from epochzero.plan.module import PlanModule
from epochzero.spaces.base import Space
from epochzero.train.augment import crop, cutout, erase, flip, mixup
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.drop_path import with_drop_path
from epochzero.train.image_data import Images
from epochzero.train.recipes import Recipe
from epochzero.types import Origin

FORMAT = 1
"""of a checkpoint of ours"""
METRICS = "metrics.jsonl"

Progress = Callable[[int, int, str], None]
"""called with steps done, steps in all, and how the training stands"""


@dataclass
class Trained:
    """A network after its training, and how it got there."""

    module: PlanModule
    history: list[dict[str, float]]
    """of every epoch: loss and accuracy in training and test, learning rate, seconds, images a second"""
    resumed: int = 0
    """the epochs that were there already"""
    refused: list[str] = field(default_factory=list)
    """checkpoints that were passed over, and why"""


def plan_for(space: Space, arch: Any, images: Images, recipe: Recipe) -> Plan:
    """The network for these images, with its auxiliary tower where the recipe wants one and the space has it."""
    wants_tower = recipe.auxiliary > 0 and "auxiliary" in inspect.signature(space.plan).parameters
    plan: Callable[..., Plan] = space.plan
    more = {"auxiliary": True} if wants_tower else {}
    found = plan(arch, images.num_classes, images.input_shape, **more)
    if found.output_shape != (images.num_classes,):
        raise UserError(f"The networks of {space.name} are no classifiers of images: they cannot be trained here.")
    return found


def train(
    plan: Plan,
    images: Images,
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    facts: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a network by a recipe. With a folder, every epoch is kept there, and a stopped training goes on.

    `facts` say which network it is (space, architecture); they are kept in the checkpoint, as are recipe and data.
    """
    run = _Training(plan, images, recipe, seed, device)
    identity: dict[str, Any] = {
        **(facts or {}),
        "num_classes": images.num_classes,
        "input_shape": list(images.input_shape),
        "auxiliary": plan.auxiliary is not None,
        "recipe": recipe.as_json(),
        "seed": seed,
        "data": images.facts,
    }
    kept = None if folder is None else Checkpoints(folder)
    trained = Trained(run.module, [])
    if kept is not None and (state := kept.last()) is not None:
        _check_same(kept.folder, state, identity)
        run.restore(state)
        trained.history, trained.resumed = list(state["history"]), state["epoch"]
        trained.refused = kept.refused
    _write_metrics(folder, trained.history)
    for epoch in range(trained.resumed, recipe.epochs):
        trained.history.append(run.epoch(epoch, progress or (lambda done, total, note: None)))
        if kept is not None:
            state = {"format": FORMAT, "identity": identity, "epoch": epoch + 1, "history": trained.history}
            kept.write(epoch + 1, state | run.state())
            _write_metrics(folder, trained.history)
    return trained


class _Training:
    """The network, its optimiser and the data, on one device."""

    def __init__(self, plan: Plan, images: Images, recipe: Recipe, seed: int, device: str) -> None:
        self.plan, self.images, self.recipe, self.seed = plan, images.to(device), recipe, seed
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        self.module = plan.module(Origin(seed=seed)).to(self.device)
        if self.on_gpu:
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.size = min(recipe.batch_size, len(images.y))
        self.steps = len(images.y) // self.size
        """in an epoch; what is left over of the shuffled images waits for another"""
        self.optimiser = torch.optim.SGD(
            self.module.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            fused=self.on_gpu or None,
        )

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self.module.state_dict()), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["weights"])
        self.optimiser.load_state_dict(state["optimiser"])

    def epoch(self, number: int, progress: Progress) -> dict[str, float]:
        """Train for one epoch, then test."""
        recipe, start = self.recipe, time.perf_counter()
        rng = generator(self.seed, "train", number)
        order = torch.randperm(len(self.images.y), generator=rng).to(self.device)
        self.module.train()
        self.module.plan = with_drop_path(self.plan, recipe.dropped(number), rng)
        loss, correct = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for step in range(self.steps):
            progress(number * self.steps + step, recipe.epochs * self.steps, f"epoch {number + 1}")
            for group in self.optimiser.param_groups:
                group["lr"] = recipe.rate(number * self.steps + step, self.steps)
            chosen = order[step * self.size : (step + 1) * self.size]
            step_loss, step_correct = self._step(self.images.x[chosen], self.images.y[chosen], rng)
            loss += step_loss
            correct += step_correct
        if not math.isfinite(float(loss)):
            raise UserError(
                f"The loss is no longer a number in epoch {number + 1}: train with a lower learning_rate, or clip the "
                "gradients."
            )
        seconds = time.perf_counter() - start
        seen = self.steps * self.size
        test_loss, test_accuracy = self.test()
        record = {
            "epoch": number + 1,
            "loss": float(loss) / self.steps,
            "accuracy": float(correct) / seen,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "learning_rate": float(self.optimiser.param_groups[0]["lr"]),
            "seconds": seconds,
            "images_per_second": seen / seconds,
        }
        note = f"loss {record['loss']:.3f}  test accuracy {100 * test_accuracy:.2f} %"
        progress((number + 1) * self.steps, recipe.epochs * self.steps, f"epoch {number + 1}  {note}")
        return record

    def _step(self, x: Tensor, y: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        x = self.images.standardised(self._moved(x, rng))  # [B, C, H, W]
        x = cutout(x, recipe.cutout, rng) if recipe.cutout else x
        x = erase(x, recipe.erase, rng) if recipe.erase else x
        partner, share = None, 1.0
        if recipe.mixup:
            x, partner, share = mixup(x, recipe.mixup, rng)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu):
            outputs = self.module(x.contiguous(memory_format=torch.channels_last) if self.on_gpu else x)
        logits, *tower = outputs if isinstance(outputs, tuple) else (outputs,)  # [B, classes]

        def cost(given: Tensor) -> Tensor:
            first = F.cross_entropy(given.float(), y, label_smoothing=recipe.label_smoothing)
            if partner is None:
                return first
            second = F.cross_entropy(given.float(), y[partner], label_smoothing=recipe.label_smoothing)
            return share * first + (1 - share) * second

        loss = cost(logits)
        whole = loss + recipe.auxiliary * cost(tower[0]) if tower else loss
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(whole)
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), recipe.clip)
        self.optimiser.step()
        return loss.detach(), (logits.argmax(1) == y).sum()

    def _moved(self, x: Tensor, rng: Generator) -> Tensor:
        x = crop(x, self.recipe.pad, rng) if self.recipe.pad else x
        return flip(x, rng) if self.recipe.flip else x

    def test(self) -> tuple[float, float]:
        """Mean loss and accuracy on the test images."""
        self.module.eval()
        self.module.plan = self.plan
        return test(self.module, self.images, self.size)


def test(module: nn.Module, images: Images, size: int = 256) -> tuple[float, float]:
    """Mean loss and accuracy of a network on the test images, which lie on its device."""
    on_gpu = images.test_x.is_cuda
    loss = correct = 0.0
    with torch.inference_mode(), torch.autocast(images.test_x.device.type, torch.bfloat16, enabled=on_gpu):
        for start in range(0, len(images.test_y), size):
            y = images.test_y[start : start + size]
            logits = module(images.standardised(images.test_x[start : start + size])).float()  # [B, classes]
            loss += float(F.cross_entropy(logits, y, reduction="sum"))
            correct += float((logits.argmax(1) == y).sum())
    return loss / len(images.test_y), correct / len(images.test_y)


def _check_same(folder: Path, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """UserError where the folder holds the training of something else."""
    if state.get("format") != FORMAT or not isinstance(state.get("identity"), dict):
        raise UserError(f"The folder '{folder}' holds checkpoints of another program: choose another folder.")
    differs = [key for key, value in identity.items() if state["identity"].get(key) != value]
    if differs:
        raise UserError(
            f"The folder '{folder}' holds a training with another {', another '.join(differs)}: choose another folder, "
            "or remove this one."
        )


def _write_metrics(folder: Path | None, history: list[dict[str, float]]) -> None:
    """One line of JSON for each epoch."""
    if folder is not None:
        part = folder / f"{METRICS}.part"
        part.write_text("".join(f"{json.dumps(record)}\n" for record in history), encoding="utf-8")
        part.replace(folder / METRICS)
