"""The expected duration of a search for a recommender, from a few networks that are scored and trained for a moment.

estimate(run)            # Estimate(network=0.8, networks=64, step=0.02, steps=3 * 400)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from random import Random

from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.recommend.sub_one_shot import SubOneShotSearch
from epochzero.recommend.supernet.weights import NASRECS, RecommenderSupernet
from epochzero.recommend.training.trainer import Trainer
from epochzero.types import Origin

TRIED, STEPS = 2, 3
"""networks that are scored, and training steps of the last of them, each after one that warms up"""
EARLY = 8
"""epochs after which early stopping ends a training, roughly"""
LONG = 600.0
"""seconds from which on the user is told what makes a search shorter"""


@dataclass(frozen=True)
class Estimate:
    """Seconds of the two long stages of a search."""

    network: float
    """seconds to score a network; 0 for one-shot fitness, which is not estimated"""
    networks: int
    step: float
    """seconds of a training step"""
    steps: int
    """of all networks that are trained in the end; the comparison with baselines takes about as many again"""

    @property
    def scoring(self) -> float:
        return self.network * self.networks

    @property
    def training(self) -> float:
        return self.step * self.steps

    @property
    def text(self) -> str:
        scored = f"{self.networks:,} networks to score at {self.network:.2g} s each, " if self.network else ""
        whole = duration(self.scoring + self.training)
        return f"about {whole} after the warm-up: {scored}then {self.steps:,} steps of training"


def duration(seconds: float) -> str:
    """Seconds in words, roughly."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{max(1, round(seconds))} s"


def estimate(run: SubOneShotSearch) -> Estimate:
    """Measures random networks of the space, with fresh weights."""
    rng, space = Random(run.seed), run.fitted
    archs = [space.sample(rng) for _ in range(TRIED + 1)]
    network = 0.0
    if run.objective is not None:
        supernet = RecommenderSupernet(space, Origin(NASRECS.scheme, run.seed))
        supernet.scores(archs[:1], run.objective.proxies, run.batch)
        start = time.perf_counter()
        supernet.scores(archs[1:], run.objective.proxies, run.batch)
        network = (time.perf_counter() - start) / TRIED
    epochs = min(run.training.epochs, EARLY if run.training.patience else run.training.epochs)
    steps = (run.preset.top + run.preset.random) * epochs * -(-run.trained_rows // run.preset.batch_size)
    model = pruned(run.final.plan(archs[-1])).module(Origin(NASRECS.scheme, run.seed))
    trainer, spent = Trainer(model, run.data.rows, steps, run.training), list[float]()
    for batch in islice(run.data.batches("train", size=run.preset.batch_size), STEPS + 1):
        start = time.perf_counter()
        trainer.train_on(batch)
        spent.append(time.perf_counter() - start)
    return Estimate(network, run.evaluations, min(spent[1:] or spent), steps)
