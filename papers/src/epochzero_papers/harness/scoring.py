"""Scores of a sample of networks, computed or read from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from epochzero.data.batch import digest
from epochzero.errors import DataError
from epochzero.executors.base import population
from epochzero.store import Store
from epochzero.study.task import Task
from epochzero.types import Score
from epochzero_papers.harness.base import Work

CHUNK = 4
"""networks that are scored and stored together on a CPU"""

Scores = dict[str, Score]
"""by the text of the proxy"""


class Job:
    """Networks, and the tasks that score each of them."""

    def __init__(self, archs: Sequence[Any], tasks: Sequence[Task]) -> None:
        self.archs = archs
        self.tasks = tasks

    @property
    def texts(self) -> list[str]:
        return [self.tasks[0].space.text(arch) for arch in self.archs]

    @property
    def digest(self) -> str:
        """A name for the networks, their batches and weights."""
        return digest(*self.texts, *(f"{task.batch.id} {task.origin}" for task in self.tasks))[:12]


class NotScoredError(DataError):
    """The given scores are not of this space, batch and weights."""


def recalled(work: Work, tasks: Sequence[Task]) -> tuple[list[str], list[Task]]:
    """Returns the networks of the given scores, in a random order, and the tasks that they answer."""
    known = [(task, set(work.store.archs(task.setting))) for task in tasks]
    answered = [task for task, archs in known if archs]
    if not answered:
        task = tasks[0]
        raise NotScoredError(
            f"the given scores have no network of {task.space.name} with the batch {task.batch.id} and weights "
            f"{task.origin}"
        )
    shared = sorted(set.intersection(*(archs for _, archs in known if archs)))
    Random(work.seed).shuffle(shared)
    return shared, answered


def nothing_recalled(experiment: str, reasons: Sequence[str]) -> DataError:
    return DataError(f"{experiment} cannot be made of these scores. {' '.join(reasons)} Leave out --scores to compute.")


def recall(task: Task, archs: Sequence[Any], store: Store) -> list[Scores]:
    """Scores from the store; a score that it lacks is a failed one."""
    texts = [task.space.text(arch) for arch in archs]
    known = {proxy.text: store.scores(task.setting, proxy.key, texts) for proxy in task.proxies}
    lacks = Score.failed("the scores that were given have none of it")
    return [{name: scores.get(text, lacks) for name, scores in known.items()} for text in texts]


def score_all(work: Work, jobs: Sequence[Job]) -> list[list[list[Scores]]]:
    """Returns the scores by job, task and architecture; computes those that the store lacks, unless `recalls`."""
    work.begin(jobs=[job.digest for job in jobs])
    if work.recalls:
        return [[recall(task, job.archs, work.store) for task in job.tasks] for job in jobs]
    total = sum(len(job.archs) for job in jobs)
    scores: list[list[list[Scores]]] = []
    done = 0
    for job in jobs:
        of_job: list[list[Scores]] = [[] for _ in job.tasks]
        for first, some in _chunks(job.archs, max(CHUNK, population(work.device))):
            work.progress(done, total)
            for task, of_task in zip(job.tasks, of_job, strict=True):
                assert work.run is not None
                of_task.extend(task.evaluate(some, work.store, work.run, first)[0])
            done += len(some)
        scores.append(of_job)
    work.progress(total, total)
    return scores


def _chunks(archs: Sequence[Any], size: int) -> Iterator[tuple[int, Sequence[Any]]]:
    for first in range(0, len(archs), size):
        yield first, archs[first : first + size]
