"""The warm-up of sub-one-shot search: the shared weights of NASRec's supernet, trained for part of an epoch.

Each step draws a path and takes one step of Adagrad, that of training/trainer.py, on the parts of the weights that it
uses. Adagrad does not move a weight of gradient zero, so a step on the parts is exact; the parts of embeddings are the
rows that the batch names. A warm-up of level x > 0 ends after the share x of the steps of one epoch, at least one. Its
schedule of learning rates and paths is compressed into these steps (`scaled`), or that of a whole epoch is cut off:
SiGeo does not say which. The path of step t depends only on the seed and t, so a warm-up resumes from a checkpoint as
if it had never stopped.

With a probability that falls from 1 to 0 over the first steps, all blocks of a path read everything before them; and
with the same probability, each block has all its ops at full size. Otherwise a block reads 1 + Bin(min(n, 4) - 1, 1/2)
of n earlier outputs and has one op of each kind; sizes, merging and FM are drawn uniformly; left and right are one
output each.

    warm = WarmUp(supernet, Schedule(epoch=71_625, level=0.01))
    warm.run(batches)                                    batches: (dense [B, D], ids [B, F], labels [B])
    warm.save("warm.pt");  WarmUp.load("warm.pt", space)

NASRec: spaces/nasrec.py; SiGeo: sub_one_shot.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from epochzero.data.sealed import read_own, write
from epochzero.engine import foreach, label_loss
from epochzero.errors import DataError, UserError
from epochzero.plan import execute
from epochzero.plan.ops.sliced import Places, regions
from epochzero.recommend.spaces.nasrec import MOST, Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import Block, Network
from epochzero.recommend.supernet.weights import RecommenderSupernet, full_path, named_rows

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""dense features [B, D], ids [B, F] and labels [B], 0 or 1"""
CLIP = 5.0
EPS = 1e-2
KIND, VERSION = "epochzero warm-up", 1


def rising_and_falling(step: int, steps: int, highest: float, lowest: float, rise: float) -> float:
    """NASRec's learning rate at a step, counted from 0: a linear rise, then a cosine."""
    rising = int(rise * steps)
    if step < rising:
        return lowest + (highest - lowest) * step / rising
    turned = math.pi * (step - rising) / max(1, steps - rising)
    return lowest + (highest - lowest) * (1 + math.cos(turned)) / 2


@dataclass(frozen=True)
class Schedule:
    """The length of a warm-up, and its learning rates and paths."""

    epoch: int
    """steps in one epoch"""
    level: float = 0.01
    """share of an epoch after which it ends"""
    scaled: bool = True
    """true if the schedule is compressed into that share"""
    highest: float = 0.12
    lowest: float = 1e-8
    rise: float = 0.1
    """share of steps in which the rate rises"""
    whole: float = 15_000 / 71_625
    """share of steps over which paths replace the whole supernet: NASRec's on Criteo"""

    def __post_init__(self) -> None:
        if self.epoch < 1 or not 0 <= self.level <= 1:
            raise UserError(
                f"--warmup takes a share from 0 to 1 of an epoch, not {self.level:g}, and an epoch has at least 1 step."
            )

    @property
    def steps(self) -> int:
        return max(1, round(self.level * self.epoch)) if self.level else 0

    @property
    def _span(self) -> int:
        return self.steps if self.scaled else self.epoch

    def rate(self, step: int) -> float:
        """The learning rate at a step, counted from 0."""
        return rising_and_falling(step, self._span, self.highest, self.lowest, self.rise)

    def full(self, step: int) -> float:
        return max(0.0, 1 - step / (self.whole * self._span)) if self.whole else 0.0


def sampled_path(space: Nasrec, rng: Random, full: float) -> Choices:
    """A random path; `full` is the probability of the whole supernet."""
    reads_all = rng.random() < full
    blocks = []
    for number, every in enumerate(full_path(space), start=1):
        block = every if rng.random() < full else _part(space, rng, every)
        blocks.append(block if reads_all else _reading(rng, block, range(number)))
    return tuple(blocks)


def _part(space: Nasrec, rng: Random, block: Block) -> Block:
    """The block with one op of each kind at a random size."""
    return block._replace(
        dense_ops=(rng.choice(space.dense_ops),),
        sparse_ops=(rng.choice(space.sparse_ops),),
        width=rng.choice(space.widths),
        rows=rng.choice(space.rows),
        merge=rng.random() < 0.5,
        fm=rng.random() < 0.5,
    )


def _reading(rng: Random, block: Block, earlier: range) -> Block:
    """The block with some of the earlier outputs as inputs."""
    dense, sparse = _some(rng, earlier), _some(rng, earlier)
    return block._replace(dense=dense, sparse=sparse, left=(rng.choice(earlier),), right=(rng.choice(earlier),))


def _some(rng: Random, outputs: range) -> tuple[int, ...]:
    """One or more outputs, in their order."""
    count = 1 + sum(rng.random() < 0.5 for _ in range(min(len(outputs), MOST) - 1))
    return tuple(sorted(rng.sample(outputs, count)))


class WarmUp:
    """The training of a supernet."""

    def __init__(self, supernet: RecommenderSupernet, schedule: Schedule, seed: int = 0) -> None:
        self.supernet, self.schedule, self.seed = supernet, schedule, seed
        self.step = 0
        self.sums = {name: torch.zeros_like(weight) for name, weight in supernet.weights.items()}

    def run(
        self,
        batches: Iterable[ClickBatch],
        steps: int | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> list[float]:
        """Trains to the end of the schedule, or for a number of steps; returns the loss of each.

        `batches` begin with the first of the data; those of earlier steps are skipped. `progress` is called with the
        number of steps taken and the loss.
        """
        last = self.schedule.steps if steps is None else min(self.step + steps, self.schedule.steps)
        losses = []
        for batch in islice(batches, self.step, last):
            losses.append(self.train_on(*batch))
            if progress is not None:
                progress(self.step, losses[-1])
        if self.step < last:
            raise DataError(f"The data ended after {self.step} batches, and this warm-up takes {last}: give more data.")
        return losses

    def train_on(self, dense: Tensor, ids: Tensor, labels: Tensor) -> float:
        """Takes one step; returns the loss before it."""
        space, device = self.supernet.space, next(iter(self.supernet.weights.values())).device
        _check(space, dense, ids, labels)
        path = sampled_path(space, Random(f"{self.seed}/{self.step}"), self.schedule.full(self.step))
        made = space.network(path)
        dense, ids, labels = dense.float().to(device), ids.to(device), labels.to(device)
        named, ids = named_rows(ids)
        leaves = self._leaves(made, named)
        loss = label_loss(execute(made.plan, leaves, (dense, ids)), labels, "mean")
        if not math.isfinite(value := loss.item()):
            raise UserError(f"The loss is {value} at step {self.step} of the warm-up: lower the learning rate.")
        raw = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)  # some blocks are dead ends
        gradients = {name: gradient for name, gradient in zip(leaves, raw, strict=True) if gradient is not None}
        norm = torch.stack(foreach.norm(list(gradients.values()))).norm()
        factor, rate = min(1.0, CLIP / (norm.item() + 1e-6)), self.schedule.rate(self.step)
        for name, gradient in gradients.items():
            self._descend(name, gradient * factor, rate, made.places, named)
        self.step += 1
        return value

    def _leaves(self, made: Network, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        kept = self.supernet.inherited({name: where for name, where in made.places.items() if name not in named})
        rows = {name: self.supernet.weights[name][which] for name, which in named.items()}
        return {name: part.requires_grad_() for name, part in (kept | rows).items()}

    def _descend(
        self, name: str, gradient: Tensor, rate: float, places: Mapping[str, Places], named: Mapping[str, Tensor]
    ) -> None:
        """One step of Adagrad on a part of a weight."""
        weight, total = self.supernet.weights[name], self.sums[name]
        if name in named:
            rows = named[name]
            total[rows] += gradient * gradient
            weight[rows] -= rate * gradient / (total[rows].sqrt() + EPS)
            return
        for there, here in regions(places[name]):
            part = gradient[here]
            total[there].addcmul_(part, part)
            weight[there].addcdiv_(part, total[there].sqrt().add_(EPS), value=-rate)

    # Checkpoints

    def save(self, file: str | Path) -> None:
        """Writes a checkpoint in place of an older one."""
        run = {"schedule": asdict(self.schedule), "seed": self.seed, "strategy": "default"}
        settings = _described(self.supernet.space) | run
        state = {"kind": KIND, "version": VERSION, "settings": settings, "step": self.step}
        write(Path(file), state | {"weights": self.supernet.weights, "sums": self.sums})

    @classmethod
    def load(cls, file: str | Path, space: Nasrec, device: str | torch.device = "cpu") -> WarmUp:
        if not Path(file).exists():
            raise UserError(f"The checkpoint {file} does not exist.")
        state = read_own(Path(file))
        if state.get("kind") != KIND or state.get("version") != VERSION:
            raise UserError(f"{file} is not a checkpoint of a warm-up, or of another version.")
        settings = state["settings"]
        for key, value in _described(space).items():
            if settings[key] != value:
                raise UserError(f"{file} was made for another space: its {key} is {settings[key]}, and not {value}.")
        supernet = RecommenderSupernet(space, state["weights"], device)
        warm = cls(supernet, Schedule(**settings["schedule"]), settings["seed"])
        supernet.check(state["sums"])
        warm.step = state["step"]
        warm.sums = {name: total.to(device) for name, total in state["sums"].items()}
        return warm


def _described(space: Nasrec) -> dict[str, Any]:
    """The facts that define the shapes of the shared weights."""
    table = {"space": space.name, "dense": space.dense, "tables": list(space.tables)}
    return table | {"widths": list(space.widths), "rows": list(space.rows)}


def _check(space: Nasrec, dense: Tensor, ids: Tensor, labels: Tensor) -> None:
    count = len(labels)
    if dense.shape != (count, space.dense) or ids.shape != (count, len(space.tables)) or labels.dim() != 1 or not count:
        raise DataError(
            f"A batch should be dense features [B, {space.dense}], ids [B, {len(space.tables)}] and labels [B], not "
            f"{list(dense.shape)}, {list(ids.shape)} and {list(labels.shape)}."
        )
    if int(ids.min()) < 0 or bool((ids.cpu() >= torch.tensor(space.tables)).any()):
        raise DataError("An id is outside its embedding table: fold the ids with `CtrTable.capped(space.tables)`.")
    if not bool(torch.isin(labels.cpu(), torch.tensor([0, 1])).all()):
        raise DataError("A label is neither 0 nor 1.")
