"""Searching among sub-networks that inherit weights: the chain from warm-up to a winner, and one-shot fitness."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch

from epochzero.data import Batch
from epochzero.engine import parse_list
from epochzero.errors import DataError
from epochzero.objectives.objective import Objective, looked_up
from epochzero.plan import execute
from epochzero.recommend.supernet.fitness import Inherited, OneShot, in_parts
from epochzero.recommend.supernet.warm_up import Schedule, WarmUp
from epochzero.recommend.supernet.weights import RecommenderSupernet
from epochzero.store import Store
from epochzero.study.loop import run_search
from epochzero.study.result import Result
from epochzero.study.sources import Feedback
from epochzero.study.task import Task
from tests.recommend.test_warm_up import SMALL, click_batches

SIGEO = "sigeo(weights=warm_recommender)"
PRESET = {"population": 6, "generations": 3, "tournament": 3, "children": 2}


@pytest.fixture(scope="module")
def warmed() -> RecommenderSupernet:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=8, level=1.0))
    warm.run(click_batches(SMALL, 8))
    return warm.supernet


def four() -> Batch:
    return in_parts(click_batches(SMALL, 12)[8:])


def test_parts_are_the_batches() -> None:
    batch, given = four(), click_batches(SMALL, 12)[8:]
    assert (batch.parts, batch.size, batch.num_classes, batch.input_shape) == (4, 32, 2, (10,))
    for index, (dense, ids, labels) in enumerate(given):
        x, y = batch.part(index)
        assert torch.equal(x, torch.cat([dense, ids], 1)) and y is not None and torch.equal(y, labels.long())
    for wrong in ([], [*given, click_batches(SMALL, 1, 7)[0]]):
        with pytest.raises(DataError, match="should be of one size"):
            in_parts(wrong)


def test_evolution_over_sub_networks(warmed: RecommenderSupernet, tmp_path: Path) -> None:
    batch, proxies = four(), parse_list(SIGEO)
    task = Task(SMALL, proxies, batch, sources=(Inherited(warmed, batch),))
    budget = SMALL.budget(max_params=60_000)
    with Store.open(tmp_path / "run.db") as store:
        outcome: Result = run_search(task, "evolution_nasrec", 12, budget=budget, options=PRESET, store=store)
        assert outcome.evaluated == 12 and outcome.best is not None
        best = outcome.best
        assert SMALL.plan(best.arch).params - SMALL.embedding_params <= 60_000
        (alone,) = warmed.scores([best.arch], proxies, batch)
        assert best.score.value == alone[SIGEO].value
        again: Result = run_search(task, "evolution_nasrec", 12, budget=budget, options=PRESET, store=store)
        assert again.best is not None and again.best.arch == best.arch


def test_other_weights_have_other_names(warmed: RecommenderSupernet) -> None:
    batch = four()
    assert Inherited(warmed, batch).name != Inherited(RecommenderSupernet(SMALL), batch).name


def test_one_shot_fitness_is_a_log_loss_after_training_the_head(warmed: RecommenderSupernet) -> None:
    training, validation = click_batches(SMALL, 4), click_batches(SMALL, 6)[4:]
    arch = SMALL.sample(Random(2))
    made = SMALL.network(arch)
    before = warmed.id
    untouched = OneShot(warmed, training, validation, Schedule(epoch=1, level=0.0))(arch)
    losses = []
    for dense, ids, labels in validation:
        clicked = torch.sigmoid(execute(made.plan, warmed.inherited(made.places), (dense, ids))[:, 0].double())
        losses.append(-torch.where(labels == 1, clicked, 1 - clicked).log())
    assert -untouched == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
    tuned = OneShot(warmed, training, training, Schedule(epoch=40, level=1.0, highest=0.04))(arch)
    assert tuned > OneShot(warmed, training, training, Schedule(epoch=1, level=0.0))(arch)
    assert warmed.id == before
    with pytest.raises(DataError, match="needs batches to fine-tune on"):
        OneShot(warmed, [], validation)


def test_one_shot_fitness_searches_too(warmed: RecommenderSupernet, tmp_path: Path) -> None:
    schedule = Schedule(epoch=2, level=1.0, highest=0.04)
    source = Feedback(OneShot(warmed, click_batches(SMALL, 2), click_batches(SMALL, 3)[2:], schedule))
    objective = Objective((looked_up(source.name),))
    task = Task(SMALL, objective.proxies, four(), sources=(source,))
    with Store.open(tmp_path / "run.db") as store:
        outcome: Result = run_search(task, "evolution_nasrec", 8, objective=objective, options=PRESET, store=store)
    assert outcome.best is not None and outcome.best.score.value < 0
