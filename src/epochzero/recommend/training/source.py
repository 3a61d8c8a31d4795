"""Metrics of NASRec networks after training, as scores of a task that a store keeps.

    training = TrainingSource(space, table)
    task = Task(space, [TEST_LOSS, TEST_AUC], batch, sources=(training,))
    task.evaluate(archs, store, run, step=0)          # trains the networks that the store has no log loss of

The space has to be made for the columns of the table (`space.on`), and the table for its embeddings (`table.capped`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from epochzero.data.batch import digest
from epochzero.engine import Proxy
from epochzero.executors.base import ScoredBatch
from epochzero.objectives.objective import FEEDBACK, looked_up
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress, silent
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.spaces.nasrec import Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import WIDE, Form, pruned
from epochzero.recommend.supernet.weights import NASRECS
from epochzero.recommend.training.baselines import BASELINES, baseline
from epochzero.recommend.training.metrics import Metrics
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.start import start
from epochzero.recommend.training.trainer import Trained, evaluate, rows_in, train
from epochzero.recommend.training.trees import trees
from epochzero.study.task import Task
from epochzero.types import Origin, Score

VAL_LOSS, TEST_LOSS = (
    replace(looked_up(f"{FEEDBACK}{part}_log_loss"), higher_is_better=False) for part in ("val", "test")
)
VAL_AUC, TEST_AUC = (looked_up(f"{FEEDBACK}{part}_auc") for part in ("val", "test"))
TREES = "trees"
EVERY_BASELINE = (*BASELINES, TREES)
MEASURED: dict[Part, tuple[Proxy, Proxy]] = {"val": (VAL_LOSS, VAL_AUC), "test": (TEST_LOSS, TEST_AUC)}


@dataclass(frozen=True)
class Baseline:
    """A model designed by hand, after training."""

    name: str
    params: int
    """embeddings included; 0 for trees"""
    trained: Trained | None
    seconds: float
    metrics: dict[Part, Metrics]


@dataclass(eq=False)
class TrainingSource:
    """Trains networks from scratch, and gives their metrics as scores."""

    candidates: ClassVar[Sequence[Any] | None] = None

    space: Nasrec
    table: CtrTable
    settings: Settings = Settings()
    seed: int = 0
    share: float = 1.0
    """of the training rows, from the first on"""
    checkpoints: Path | None = None
    """folder for checkpoints"""
    every: int = 500
    """steps between checkpoints"""
    progress: Progress = silent

    @cached_property
    def id(self) -> str:
        form = [] if self.space.form == Form() else [self.space.form]
        settings = sorted(self.settings.told().items())
        return digest(self.table.fingerprint, self.table.rows, settings, self.seed, self.share, *form)[:16]

    @property
    def name(self) -> str:
        return f"trained {self.id}"

    def covers(self, proxy: Proxy) -> bool:
        return any(proxy.name == measure.name for pair in MEASURED.values() for measure in pair)

    def score(self, task: Task, archs: Sequence[Choices]) -> ScoredBatch:
        names = {proxy.name for proxy in task.proxies}
        scored = []
        for arch in archs:
            start = time.perf_counter()
            model, scores = self.trained(arch), dict[str, Score]()
            for part, measures in MEASURED.items():
                if names & {measure.name for measure in measures}:
                    both = zip(measures, scores_of(evaluate(model, self.table, part)), strict=True)
                    scores |= {measure.name: score for measure, score in both if measure.name in names}
            scored.append((scores, time.perf_counter() - start))
        return scored

    def checkpoint(self, folder: Path, name: str) -> Path:
        return folder / f"trained-{digest(self.id, name)[:16]}.pt"

    def identity(self, name: str) -> dict[str, str | int]:
        return {"network": name, "seed": self.seed}

    def model(self, arch: Choices) -> PlanModule:
        """The network without dead ends, with weights drawn by the seed; without blocks, its linear model alone."""
        model = pruned(self.space.plan(arch)).module(Origin(NASRECS.scheme, self.seed))
        start(model, self.table, self.settings, self.seed)
        return model

    def trained(self, arch: Choices) -> nn.Module:
        model = self.model(arch)
        self.fit_network(model, self.space.text(arch))
        return model

    def fit_network(self, model: nn.Module, name: str, file: Path | None = None) -> Trained:
        """Trains a network; one that would end behind its own linear model on the validation rows starts from it."""
        wide = self.space.form.wide and self.settings.patience > 0
        return self.fit(model, name, file, (lambda: self.linear) if wide else None)

    @cached_property
    def linear(self) -> dict[str, Tensor]:
        """The weights of the linear model, trained alone."""
        model = self.model(())
        self.fit(model, WIDE)
        return {name: weight for name, weight in model.state_dict().items() if name.startswith(WIDE)}

    def baseline(self, name: str, device: str = "cpu") -> Baseline:
        """A model designed by hand, trained in the same way; trees in their own."""
        begun = time.perf_counter()
        if name == TREES:
            return Baseline(
                name,
                0,
                None,
                time.perf_counter() - begun,
                trees(self.table, seed=self.seed, rows=rows_in(self.share, self.table.size("train"))),
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = baseline(name, self.table.num_dense, self.table.rows, self.space.form.standardised)
        start(model, self.table, self.settings, self.seed)
        trained = self.fit(model.to(device), name)
        metrics: dict[Part, Metrics] = {
            part: evaluate(model, self.table, part) for part in MEASURED if self.table.size(part)
        }
        params = sum(weight.numel() for weight in model.parameters())
        return Baseline(name, params, trained, trained.seconds, metrics)

    def fit(
        self,
        model: nn.Module,
        name: str,
        file: Path | None = None,
        other_start: Callable[[], Mapping[str, Tensor]] | None = None,
    ) -> Trained:
        """Trains any model in the same way, or resumes from its checkpoint."""
        if file is None and self.checkpoints is not None:
            file = self.checkpoint(self.checkpoints, name)
        return train(
            model,
            self.table,
            self.settings,
            share=self.share,
            seed=self.seed,
            identity=self.identity(name),
            other_start=other_start,
            checkpoint=file,
            every=self.every,
            progress=self.progress,
        )


def scores_of(metrics: Metrics) -> tuple[Score, Score]:
    return Score(metrics.log_loss), Score.failed(metrics.why) if math.isnan(metrics.auc) else Score(metrics.auc)
