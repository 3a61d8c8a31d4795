"""The fitness of sub-networks in a search: proxies on inherited weights, or NASRec's one-shot fitness.

    batch = in_parts(batches)                            # four batches of clicks as one batch
    task = Task(space, parse_list("sigeo(weights=warm_recommender)"), batch, sources=(Inherited(supernet, batch),))
    run_search(task, "evolution_nasrec", 2048, budget=space.budget(max_params=2_000_000), store=store)

One-shot fitness is the log loss on validation data of a sub-network whose last layer was fine-tuned by 500 steps of
Adagrad, with a learning rate that rises to 0.04 in a tenth of them and falls as a cosine. `OneShot` is a function of an
architecture; `Feedback(OneShot(...))` is a source for the same search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from epochzero.data import Batch, from_tensors
from epochzero.engine import Proxy, label_loss
from epochzero.errors import DataError
from epochzero.objectives.objective import FEEDBACK, TABLE
from epochzero.plan import execute
from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.supernet.warm_up import EPS, ClickBatch, Schedule
from epochzero.recommend.supernet.weights import RecommenderSupernet
from epochzero.study.task import Task
from epochzero.types import Score

HEAD = "head."
FINE = Schedule(epoch=500, level=1.0, highest=0.04)


def in_parts(batches: Sequence[ClickBatch]) -> Batch:
    """Batches of clicks of one size, as the parts of one batch for proxies."""
    if len({len(labels) for _, _, labels in batches}) != 1:
        raise DataError("Batches to score on should be of one size, and there should be at least one.")
    dense, ids, labels = (torch.cat(columns) for columns in zip(*batches, strict=True))
    return from_tensors((dense, ids), labels.long(), parts=len(batches), num_classes=2)


class Inherited:
    """Scores sub-networks with their inherited weights, as they are when this is made."""

    candidates: Sequence[Any] | None = None

    def __init__(self, supernet: RecommenderSupernet, batch: Batch) -> None:
        self.supernet, self.batch = supernet, batch
        self.name = f"{supernet.id} {batch.id}"
        """replaces the batch in a store"""

    def covers(self, proxy: Proxy) -> bool:
        return not proxy.name.startswith((TABLE, FEEDBACK))

    def score(self, task: Task, archs: Sequence[Choices]) -> list[tuple[dict[str, Score], float]]:
        start = time.perf_counter()
        scores = self.supernet.scores(archs, task.proxies, self.batch, task.origin.seed)
        seconds = (time.perf_counter() - start) / max(1, len(archs))
        return [(one, seconds) for one in scores]


class OneShot:
    """Minus the validation log loss of a sub-network with a fine-tuned last layer; higher is better."""

    def __init__(
        self,
        supernet: RecommenderSupernet,
        training: Sequence[ClickBatch],
        validation: Sequence[ClickBatch],
        schedule: Schedule = FINE,
    ) -> None:
        """Training repeats its batches until the schedule ends."""
        if not training or not validation:
            raise DataError("One-shot fitness needs batches to fine-tune on and batches to validate on.")
        self.supernet, self.training, self.validation, self.schedule = supernet, training, validation, schedule
        self.__name__ = f"one_shot {supernet.id}"

    def __call__(self, arch: Choices) -> float:
        made = self.supernet.space.network(arch)
        weights = self.supernet.inherited(made.places)
        device = next(iter(weights.values())).device
        head = {name: weight.requires_grad_() for name, weight in weights.items() if name.startswith(HEAD)}
        optimiser = torch.optim.Adagrad(list(head.values()), eps=EPS)
        for step in range(self.schedule.steps):
            dense, ids, labels = (part.to(device) for part in self.training[step % len(self.training)])
            loss = label_loss(execute(made.plan, weights, (dense.float(), ids)), labels, "mean")
            for weight, gradient in zip(head.values(), torch.autograd.grad(loss, list(head.values())), strict=True):
                weight.grad = gradient
            optimiser.param_groups[0]["lr"] = self.schedule.rate(step)
            optimiser.step()
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in self.validation:
                dense, ids, labels = (part.to(device) for part in batch)
                total += label_loss(execute(made.plan, weights, (dense.float(), ids)), labels).double().sum().item()
                count += len(labels)
        return -total / count
