r"""Training the shared weights of NASRec's supernet for a while: the warm-up of sub-one-shot search.

Each step draws a path (paths.py), takes the parts of the weights that it uses, and makes one step of Adagrad on them:

    g    = gradient of the mean binary cross-entropy, its norm clipped at 5
    s   += g^2
    w   -= rate(t) g / (sqrt(s) + 0.01)
    rate(t) = 0.12 t / r  for t < r,   0.06 (1 + cos(pi (t - r) / (T - r)))  after, never under 1e-8;   r = T / 10

Adagrad does not move a weight of gradient zero, so that stepping the parts alone is exact; of embeddings, parts are the
rows that the batch names. A warm-up of level x > 0 ends after x of the steps of one epoch, at least one. Its schedule,
learning rate and paths alike, is squeezed into these steps (`scaled`), or runs as for a whole epoch and is cut off:
SiGeo does not say which. The path of step t depends on the seed and t alone, so that a warm-up goes on from a
checkpoint as if it had never stopped.

    warm = WarmUp(supernet, Schedule(epoch=71_625, level=0.01))
    warm.run(batches)                                    batches: (dense [B, D], ids [B, F], labels [B])
    warm.save("warm.pt");  WarmUp.load("warm.pt", space)

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
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
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.spaces.nasrec_network import Network
from epochzero.recommend.supernet.paths import check_strategy, sampled_path
from epochzero.recommend.supernet.weights import RecommenderSupernet, named_rows

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""dense features [B, D], ids [B, F] and labels [B], 0 or 1"""
CLIP = 5.0
EPS = 1e-2
KIND, VERSION = "epochzero warm-up", 1


def rising_and_falling(step: int, steps: int, highest: float, lowest: float, rise: float) -> float:
    """NASRec's learning rate at a step, counted from 0: up in a line for a share of all steps, down as a cosine."""
    rising = int(rise * steps)
    if step < rising:
        return lowest + (highest - lowest) * step / rising
    turned = math.pi * (step - rising) / max(1, steps - rising)
    return lowest + (highest - lowest) * (1 + math.cos(turned)) / 2


@dataclass(frozen=True)
class Schedule:
    """How long a warm-up is, and what its rate and its paths are at each step."""

    epoch: int
    """steps in one epoch"""
    level: float = 0.01
    """the share of an epoch after which it ends"""
    scaled: bool = True
    """whether everything is squeezed into that share"""
    highest: float = 0.12
    lowest: float = 1e-8
    rise: float = 0.1
    """the share of steps in which the rate rises"""
    whole: float = 15_000 / 71_625
    """the share of steps over which the whole supernet gives way to paths: NASRec's on Criteo"""

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
        """The learning rate; steps are counted from 0."""
        return rising_and_falling(step, self._span, self.highest, self.lowest, self.rise)

    def full(self, step: int) -> float:
        """The probability of the whole supernet."""
        return max(0.0, 1 - step / (self.whole * self._span)) if self.whole else 0.0


class WarmUp:
    """A supernet in training."""

    def __init__(
        self, supernet: RecommenderSupernet, schedule: Schedule, seed: int = 0, strategy: str = "default"
    ) -> None:
        check_strategy(strategy)
        self.supernet, self.schedule, self.seed, self.strategy = supernet, schedule, seed, strategy
        self.step = 0
        self.sums = {name: torch.zeros_like(weight) for name, weight in supernet.weights.items()}

    def run(
        self,
        batches: Iterable[ClickBatch],
        steps: int | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> list[float]:
        """Train to the end of the schedule, or for so many steps; gives the loss of each.

        `batches` begin with the first of the data; those that were trained on already are passed over. `progress` is
        called with the number of steps taken and the loss.
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
        """One step; gives the loss before it."""
        space, device = self.supernet.space, next(iter(self.supernet.weights.values())).device
        _check(space, dense, ids, labels)
        path = sampled_path(space, Random(f"{self.seed}/{self.step}"), self.schedule.full(self.step), self.strategy)
        made = space.network(path)
        dense, ids, labels = dense.float().to(device), ids.to(device), labels.to(device)
        named, ids = named_rows(ids)
        leaves = self._leaves(made, named)
        loss = label_loss(execute(made.plan, leaves, (dense, ids)), labels, "mean")
        if not math.isfinite(value := loss.item()):
            raise UserError(f"The loss is {value} at step {self.step} of the warm-up: lower the learning rate.")
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)  # some blocks lead nowhere
        gradients = {name: gradient for name, gradient in zip(leaves, found, strict=True) if gradient is not None}
        norm = torch.stack(foreach.norm(list(gradients.values()))).norm()
        factor, rate = min(1.0, CLIP / (norm.item() + 1e-6)), self.schedule.rate(self.step)
        for name, gradient in gradients.items():
            self._descend(name, gradient * factor, rate, made.places, named)
        self.step += 1
        return value

    def _leaves(self, made: Network, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parts of the weights that a path uses."""
        kept = self.supernet.inherited({name: where for name, where in made.places.items() if name not in named})
        rows = {name: self.supernet.weights[name][which] for name, which in named.items()}
        return {name: part.requires_grad_() for name, part in (kept | rows).items()}

    def _descend(
        self, name: str, gradient: Tensor, rate: float, places: Mapping[str, Places], named: Mapping[str, Tensor]
    ) -> None:
        """A step of Adagrad on a part of one weight."""
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
        """Write everything that is needed to go on; an older file stays whole until the new one is."""
        run = {"schedule": asdict(self.schedule), "seed": self.seed, "strategy": self.strategy}
        settings = _described(self.supernet.space) | run
        state = {"kind": KIND, "version": VERSION, "settings": settings, "step": self.step}
        write(Path(file), state | {"weights": self.supernet.weights, "sums": self.sums})

    @classmethod
    def load(cls, file: str | Path, space: Nasrec, device: str | torch.device = "cpu") -> WarmUp:
        """The warm-up that was saved there; nothing but numbers and texts is read from the file."""
        if not Path(file).exists():
            raise UserError(f"There is no checkpoint {file}.")
        state = read_own(Path(file))
        if state.get("kind") != KIND or state.get("version") != VERSION:
            raise UserError(f"{file} is no checkpoint of a warm-up, or one of another version.")
        settings = state["settings"]
        for key, value in _described(space).items():
            if settings[key] != value:
                raise UserError(f"{file} was made for another space: its {key} is {settings[key]}, and not {value}.")
        supernet = RecommenderSupernet(space, state["weights"], device)
        warm = cls(supernet, Schedule(**settings["schedule"]), settings["seed"], settings["strategy"])
        supernet.check(state["sums"])
        warm.step = state["step"]
        warm.sums = {name: total.to(device) for name, total in state["sums"].items()}
        return warm


def _described(space: Nasrec) -> dict[str, Any]:
    """All that the shapes of the shared weights depend on."""
    table = {"space": space.name, "dense": space.dense, "tables": list(space.tables)}
    return table | {"widths": list(space.widths), "rows": list(space.rows)}


def _check(space: Nasrec, dense: Tensor, ids: Tensor, labels: Tensor) -> None:
    count = len(labels)
    if dense.shape != (count, space.dense) or ids.shape != (count, len(space.tables)) or labels.dim() != 1 or not count:
        raise DataError(
            f"A batch should be dense features [B, {space.dense}], ids [B, {len(space.tables)}] and labels [B], and is "
            f"{list(dense.shape)}, {list(ids.shape)} and {list(labels.shape)}."
        )
    if int(ids.min()) < 0 or bool((ids.cpu() >= torch.tensor(space.tables)).any()):
        raise DataError("An id is outside its table: bring ids into the space's tables with `folded`.")
    if not bool(torch.isin(labels.cpu(), torch.tensor([0, 1])).all()):
        raise DataError("A label is neither 0 nor 1.")
