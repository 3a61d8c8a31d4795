"""Images a second of our training loop and of a plain one, and the accuracy that both reach.

    python benchmarks/training.py                                                     # CPU: images a second
    PYTHONPATH=src python benchmarks/training.py --device cuda --data cifar10.npz     # GPU, torch and numpy alone
    PYTHONPATH=src python benchmarks/training.py --device cuda --data cifar10.npz --epochs 30 --seeds 3   # and accuracy

The plain loop is what anybody would write with torch alone: the printed network, data on the device, torch's SGD and
cosine schedule, the same border crop and flip. On a GPU it is run in single precision, and with bfloat16, maps laid
out channels last and convolutions chosen by trial, as ours is. Loops take turns within one run, so that a busy machine
slows them alike; figures are medians over the turns. One line of JSON for each loop, then one for the ratio to the
fastest plain loop.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.train.image_data import Images, load_images
from epochzero.train.loop import Training, quick_convolutions
from epochzero.train.processes import Processes
from epochzero.train.recipes import Recipe
from epochzero.types import Origin

ARCH = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
"""of NAS-Bench-201, 1.29 million parameters"""
PAD = 4


class Loop(Protocol):
    """Trains one network."""

    name: str

    def epoch(self, number: int) -> float:
        """Train for an epoch, and say how many seconds that took."""

    def accuracy(self) -> float:
        """On the test images."""


class OurLoop:
    """`epochzero train`; by default with the steps recorded on a GPU."""

    def __init__(
        self, plan: Plan, images: Images, recipe: Recipe, seed: int, device: str, record: bool | None = None
    ) -> None:
        self.name = "ours" if record is None else "ours, step by step"
        self.training = Training(plan, images, recipe, seed, Processes(device=device), record=record)
        self.last: dict[str, float] = {}

    def epoch(self, number: int) -> float:
        self.last = self.training.epoch(number, lambda done, total, note: None)
        return self.last["seconds"]

    def accuracy(self) -> float:
        return self.last["test_accuracy"]


class PlainLoop:
    """The plain PyTorch version."""

    def __init__(self, plan: Plan, images: Images, recipe: Recipe, seed: int, device: str, half: bool) -> None:
        self.name = "plain, bfloat16 and channels last" if half else "plain, single precision"
        self.device, self.half, self.size = device, half, recipe.batch_size
        self.images = images.to(device)
        network = printed(plan)
        network.load_state_dict(plan.module(Origin(seed=seed)).state_dict())
        self.network = network.to(device)
        if half:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.steps = len(images.y) // self.size
        self.optimiser = torch.optim.SGD(
            network.parameters(),
            recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, recipe.epochs * self.steps)
        self.rng = torch.Generator(device).manual_seed(seed)

    def epoch(self, number: int) -> float:
        start = time.perf_counter()
        self.network.train()
        order = torch.randperm(len(self.images.y), generator=self.rng, device=self.device)
        with quick_convolutions(self.half):
            for some in torch.split(order[: self.steps * self.size], self.size):
                x, y = self.images.standardised(self.moved(self.images.x[some])), self.images.y[some]
                with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.half):
                    loss = F.cross_entropy(self.network(self.laid_out(x)), y)
                self.optimiser.zero_grad()
                torch.autograd.backward(loss)
                self.optimiser.step()
                self.schedule.step()
            loss.item()
        return time.perf_counter() - start

    def moved(self, x: Tensor) -> Tensor:
        """A random crop of the image with a black border, and every other one flipped."""
        B, _, H, W = x.shape
        top, left = torch.randint(2 * PAD + 1, (2, B, 1), generator=self.rng, device=self.device)  # [B, 1] each
        columns = left + torch.arange(W, device=self.device)  # [B, W]
        turned = torch.rand(B, 1, generator=self.rng, device=self.device) < 0.5
        columns = torch.where(turned, columns.flip(1), columns)
        rows = top + torch.arange(H, device=self.device)  # [B, H]
        each = torch.arange(B, device=self.device)[:, None, None]
        return F.pad(x, (PAD,) * 4).permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    def laid_out(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last if self.half else torch.contiguous_format)

    def accuracy(self) -> float:
        self.network.eval()
        with torch.no_grad():
            found = [self.network(self.images.standardised(x)).argmax(1) for x in torch.split(self.images.test_x, 500)]
        return float((torch.cat(found) == self.images.test_y).double().mean())


def printed(plan: Plan) -> nn.Module:
    """The network as the code that we print."""
    namespace: dict[str, Any] = {"__name__": "printed"}
    exec(compile(plan.code(), "printed", "exec"), namespace)  # our own code
    network: nn.Module = namespace["Network"]()
    return network


def some_images(images: Images, count: int, test: int) -> Images:
    """The first of them."""
    return replace(
        images, x=images.x[:count], y=images.y[:count], test_x=images.test_x[:test], test_y=images.test_y[:test]
    )


def drawn_images(count: int) -> Images:
    """Noise, where no file is given: speed does not depend on what is in the images."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count + 64, 3, 32, 32), generator=rng, dtype=torch.uint8)
    y = torch.randint(10, (count + 64,), generator=rng)
    middle = torch.full((1, 3, 1, 1), 127.5)
    facts = {"file": "noise", "mean": [0.5] * 3, "std": [0.29] * 3}
    return Images(x[64:], y[64:], x[:64], y[:64], middle, 0.29 * 2 * middle, 10, facts)


def loops_of(plan: Plan, images: Images, recipe: Recipe, seed: int, device: str, all_of_them: bool) -> list[Loop]:
    """Ours and the plain one; all: in both precisions, and ours without the recording."""
    on_gpu = device.startswith("cuda")
    loops: list[Loop] = [OurLoop(plan, images, recipe, seed, device)]
    if on_gpu and all_of_them:
        loops.append(OurLoop(plan, images, recipe, seed, device, record=False))
    if on_gpu:
        loops.append(PlainLoop(plan, images, recipe, seed, device, half=True))
    if all_of_them or not on_gpu:
        loops.append(PlainLoop(plan, images, recipe, seed, device, half=False))
    return loops


def speeds(loops: list[Loop], images_an_epoch: int, turns: int) -> dict[str, list[float]]:
    """Images a second of every loop in every turn, after a first one that does not count."""
    found: dict[str, list[float]] = {loop.name: [] for loop in loops}
    for turn in range(turns + 1):
        for loop in loops:
            seconds = loop.epoch(turn)
            if turn:
                found[loop.name].append(images_an_epoch / seconds)
    return found


def compare_speed(plan: Plan, images: Images, recipe: Recipe, device: str, turns: int) -> None:
    """Print images a second, and how ours compare with the fastest plain ones in the same turn."""
    seen = len(images.y) // recipe.batch_size * recipe.batch_size
    found = speeds(loops_of(plan, images, recipe, 0, device, True), seen, turns)
    for name, values in found.items():
        spread = {"median": statistics.median(values), "least": min(values), "most": max(values)}
        say({"loop": name, "images_per_second": spread, "turns": turns})
    plain = [max(turn) for turn in zip(*(v for name, v in found.items() if name.startswith("plain")), strict=True)]
    ratios = [ours / theirs for ours, theirs in zip(found["ours"], plain, strict=True)]
    say({"ratio_to_the_fastest_plain_loop": statistics.median(ratios), "least": min(ratios), "most": max(ratios)})


def compare_accuracy(plan: Plan, images: Images, recipe: Recipe, device: str, seeds: int) -> None:
    """Print the test accuracy of both after the whole recipe, by seed."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        for loop in loops_of(plan, images, recipe, seed, device, False):
            for epoch in range(recipe.epochs):
                loop.epoch(epoch)
            accuracy = loop.accuracy()
            say({"loop": loop.name, "seed": seed, "test_accuracy": accuracy})
            found.setdefault(loop.name, []).append(accuracy)
    for name, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else None
        say({"loop": name, "test_accuracy": values, "mean": statistics.mean(values), "std": spread})


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="an .npz file; default: noise, for speed alone")
    parser.add_argument("--batch-size", type=int, help="default: 256 on a GPU, 32 on a CPU")
    parser.add_argument("--images", type=int, help="in an epoch; default: all on a GPU, 128 on a CPU")
    parser.add_argument("--turns", type=int, default=5, help="of every loop")
    parser.add_argument("--epochs", type=int, default=0, help="of the comparison of accuracies; 0 for none")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    on_gpu = asked.device.startswith("cuda")
    size = asked.batch_size or (256 if on_gpu else 32)
    count = asked.images or (10_000 if on_gpu else 128)
    images = drawn_images(count) if asked.data is None else load_images(asked.data)
    space = spaces["nb201"]
    plan = space.plan(space.parse(ARCH), images.num_classes, images.input_shape)
    machine = torch.cuda.get_device_name() if on_gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    say({"params": plan.params, "batch": size, "machine": machine, "torch": torch.__version__})
    recipe = Recipe(epochs=max(asked.epochs, asked.turns + 1), batch_size=size, nesterov=True, pad=PAD)
    if asked.turns:
        compare_speed(plan, some_images(images, count, 64), recipe, asked.device, asked.turns)
    if asked.epochs:
        test = len(images.test_y)
        compare_accuracy(
            plan, some_images(images, count, test), replace(recipe, epochs=asked.epochs), asked.device, asked.seeds
        )


if __name__ == "__main__":
    main()
