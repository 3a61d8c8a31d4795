"""The training loop: a network, as a plan or a module, its optimiser and the data on one device, epoch by epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from epochzero.engine.modules.outputs import pick
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.plan.execute import execute, execute_both
from epochzero.plan.init import generator
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress
from epochzero.train.augment import crop, cutout, erase, flip, hue, jitter, mixup, zoom
from epochzero.train.auto_augment import auto_augment
from epochzero.train.drop_path import with_drop_path
from epochzero.train.image_data import Images
from epochzero.train.processes import Processes
from epochzero.train.recipes import Recipe
from epochzero.train.step import Forward, Step, soft_labels
from epochzero.train.teacher import Teacher
from epochzero.types import Origin


class Training:
    """The network, its optimiser and the data, on one device."""

    def __init__(
        self,
        network: Plan | nn.Module,
        images: Images,
        recipe: Recipe,
        seed: int = 0,
        processes: Processes = Processes(),
        teacher: Teacher | None = None,
        record: bool | None = None,
    ) -> None:
        """`record`: replay steps from a CUDA graph; default: on a GPU, if the recipe allows it."""
        self.recipe, self.seed, self.processes = recipe, seed, processes
        self.plan = network if isinstance(network, Plan) else None
        if self.plan is None and recipe.drop_path:
            raise UserError("A module has no paths to drop: give --option drop_path=0.")
        self.device = torch.device(processes.device)
        self.on_gpu = self.device.type == "cuda"
        self.images = images.to(self.device)
        if recipe.auto_augment and images.x.dtype != torch.uint8:
            raise UserError("AutoAugment needs images of bytes, and these are not: give --option auto_augment=0.")
        self.teacher = None if teacher is None else teacher.for_images(self.images).to(self.device)
        module = network.module(Origin(seed=seed)) if isinstance(network, Plan) else network
        self.module: nn.Module = module.to(self.device)
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.joined = processes.joined(self.module)
        self.size = min(recipe.batch_size, len(images.y))
        self.steps = len(images.y) // self.size
        """in an epoch; an incomplete last batch is dropped"""
        self.share = processes.share(self.size)
        self.optimiser = torch.optim.SGD(
            self.module.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            fused=self.on_gpu or None,
        )
        can_record = self.on_gpu and self.joined is None and not recipe.drop_path and self.plan is not None
        self.record = can_record if record is None else record
        self.recorded: Step | None = None

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
        if not self.processes.first:
            rng = generator(self.seed, "train", number, self.processes.rank)
        self.module.train()
        if isinstance(self.module, PlanModule) and self.plan is not None:
            self.module.plan = with_drop_path(self.plan, recipe.dropped(number), rng)
        step = self._step()
        sums = torch.zeros(2, device=self.device)  # loss, correct predictions
        with quick_convolutions(self.on_gpu):
            for at in range(self.steps):
                progress(number * self.steps + at, recipe.epochs * self.steps, f"epoch {number + 1}")
                for group in self.optimiser.param_groups:
                    group["lr"] = recipe.rate(number * self.steps + at, self.steps)
                chosen = order[at * self.size : (at + 1) * self.size][self.share]
                y = self.images.y[chosen]
                x, target = self._inputs(self.images.x[chosen], y, rng)
                loss, logits = step(x, target, None if self.teacher is None else self.teacher(x))
                if recipe.clip:
                    nn.utils.clip_grad_norm_(step.parameters, recipe.clip)
                self.optimiser.step()
                sums += torch.stack((loss, (logits.argmax(1) == y).sum()))
        loss_sum, correct = self.processes.summed(sums).tolist()
        if not math.isfinite(loss_sum):
            raise UserError(
                f"The loss became NaN or infinite in epoch {number + 1}: lower the learning_rate, or clip gradients."
            )
        seconds = time.perf_counter() - start
        seen = self.steps * self.size
        test_loss, test_accuracy = self.test()
        record = {
            "epoch": number + 1,
            "loss": loss_sum / self.steps / self.processes.count,
            "accuracy": correct / seen,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "learning_rate": float(self.optimiser.param_groups[0]["lr"]),
            "seconds": seconds,
            "images_per_second": seen / seconds,
        }
        note = f"loss {record['loss']:.3f}  test accuracy {100 * test_accuracy:.2f} %"
        progress((number + 1) * self.steps, recipe.epochs * self.steps, f"epoch {number + 1}  {note}")
        return record

    def _step(self) -> Step:
        """The step of this epoch; a recorded step serves all epochs."""
        if self.recorded is not None:
            return self.recorded
        step = Step(self._forward(), self.module, self.recipe, half=self.on_gpu, record=self.record)
        if self.record:
            self.recorded = step
        return step

    def _forward(self) -> Forward:
        """The network as a function; a single process looks up its weights once."""
        if self.joined is not None:
            return self.joined
        if not isinstance(self.module, PlanModule):
            return lambda x: pick(self.module(x), None)
        plan, weights = self.module.plan.with_statistics("tracked"), self.module.weights()
        run = execute if plan.auxiliary is None else execute_both
        return lambda x: run(plan, weights, (x,))

    def _inputs(self, x: Tensor, y: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        """Augmented, standardised images [B, C, H, W], and their labels as probabilities [B, classes]."""
        recipe = self.recipe
        x = zoom(x, recipe.zoom, rng) if recipe.zoom else x
        x = crop(x, recipe.pad, rng) if recipe.pad else x
        x = flip(x, rng) if recipe.flip else x
        x = auto_augment(x, rng) if recipe.auto_augment else x
        x = jitter(x, recipe.jitter, rng) if recipe.jitter else x
        x = hue(x, recipe.hue, rng) if recipe.hue else x
        x = self.images.standardised(x)
        x = cutout(x, recipe.cutout, rng) if recipe.cutout else x
        x = erase(x, recipe.erase, rng) if recipe.erase else x
        target = soft_labels(y, self.images.num_classes, recipe.label_smoothing)
        if recipe.mixup:
            x, partner, share = mixup(x, recipe.mixup, rng)
            target = share * target + (1 - share) * target[partner]
        return x.contiguous(memory_format=torch.channels_last), target

    def test(self) -> tuple[float, float]:
        """Mean loss and accuracy on the test images."""
        self.module.eval()
        if isinstance(self.module, PlanModule) and self.plan is not None:
            self.module.plan = self.plan
        return test(self.module, self.images, self.size)


def test(module: nn.Module, images: Images, size: int = 256) -> tuple[float, float]:
    """Mean loss and accuracy of a network on the test images, which have to be on its device."""
    device = images.test_x.device
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss, correct predictions
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for start in range(0, len(images.test_y), size):
            y = images.test_y[start : start + size]
            logits = pick(
                module(images.standardised(images.test_x[start : start + size])), None
            ).float()  # [B, classes]
            sums += torch.stack((F.cross_entropy(logits, y, reduction="sum"), (logits.argmax(1) == y).sum()))
    loss, accuracy = (sums / len(images.test_y)).tolist()
    return loss, accuracy


@contextmanager
def quick_convolutions(on_gpu: bool) -> Iterator[None]:
    """CuDNN tries its algorithms on the first batch and keeps the fastest; the setting is restored at the end."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or on_gpu
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
