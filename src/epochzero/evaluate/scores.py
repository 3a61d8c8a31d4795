"""The scores of a benchmark for each table's sample in each repeat, from the store if it has them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epochzero.evaluate.sample import Sample
from epochzero.evaluate.time_left import TimeLeft
from epochzero.executors.base import population
from epochzero.progress import Progress
from epochzero.store import Run, Store
from epochzero.study.task import Task
from epochzero.types import Score

SECONDS = 5.0
"""duration of a step for networks that are scored one at a time"""


Scores = dict[str, list[Score]]
"""by proxy, in the order of the sample"""


@dataclass(frozen=True)
class Work:
    """Networks that one task scores in chunks."""

    kind: tuple[int, int]
    """the number of the table, and of a part of its proxies: networks of one kind take about the same time"""
    task: Task
    values: list[Any]
    run: Run
    places: list[int]
    """for each network of the sample, the index of the value that has its score"""
    new_scores: Scores
    known: frozenset[int]
    """indices of values whose scores are all in the store"""

    def chunks(self, time_left: TimeLeft[tuple[int, int]]) -> Iterator[range]:
        """Ranges that are scored and stored in one step: one network, then as many as take a few seconds.

        On a GPU all chunks have one size, so that populations do not depend on interruptions.
        """
        first, workers, together = 0, self.task.executor.workers, population(self.task.device)
        while first < len(self.values):
            if together > 1:
                stop = min(first + together * workers, len(self.values))
            else:
                stop = self._after(first, max(workers, time_left.amount_in(SECONDS, self.kind)))
            yield range(first, stop)
            first = stop

    def _after(self, first: int, new: int) -> int:
        """The end of a range with `new` networks that are not in the store."""
        for place in range(first, len(self.values)):
            new -= place not in self.known
            if not new:
                return place + 1
        return len(self.values)

    def score(self, chunk: range, store: Store) -> None:
        some = self.values[chunk.start : chunk.stop]
        scored, _ = self.task.evaluate(some, store, self.run, chunk.start)
        for scores in scored:
            for name, score in scores.items():
                self.new_scores[name].append(score)


def score_all(
    samples: Sequence[Sample], tasks: Sequence[Sequence[Task]], runs: Sequence[Run], store: Store, progress: Progress
) -> list[list[Scores]]:
    """Scores [tables][repeats] of each sample by each of its tasks."""
    works = [
        [_works(table, sample, task, run, store) for task in repeats]
        for table, (sample, repeats, run) in enumerate(zip(samples, tasks, runs, strict=True))
    ]
    _work_off([work for repeats in works for parts in repeats for work in parts], store, progress)
    return [
        [_scores(parts, task) for parts, task in zip(repeats, own, strict=True)]
        for repeats, own in zip(works, tasks, strict=True)
    ]


def _scores(parts: Sequence[Work], task: Task) -> Scores:
    """The scores of the whole sample by the task's proxies."""
    scores = {
        name: [scores[place] for place in part.places] for part in parts for name, scores in part.new_scores.items()
    }
    return {proxy.text: scores[proxy.text] for proxy in task.proxies}


def _works(table: int, sample: Sample, task: Task, run: Run, store: Store) -> list[Work]:
    """One part, or two if scores are shared: parameters and FLOPs are counted for each network."""
    everyone = list(range(len(sample.values)))
    parts = [(list(task.proxies), everyone)]
    if sample.sharing is not None:
        shared = [proxy for proxy in task.proxies if not proxy.free]
        parts = [([proxy for proxy in task.proxies if proxy.free], everyone), (shared, sample.sharing.leaders)]
    return [
        _work((table, part), replace(task, proxies=some), of, sample, run, store)
        for part, (some, of) in enumerate(parts)
        if some
    ]


def _work(kind: tuple[int, int], task: Task, leaders: list[int], sample: Sample, run: Run, store: Store) -> Work:
    chosen = list(dict.fromkeys(leaders))
    values = [sample.values[leader] for leader in chosen]
    known = frozenset(i for i, held in enumerate(task.held(values, store)) if held)
    place = {leader: i for i, leader in enumerate(chosen)}
    empty: Scores = {proxy.text: [] for proxy in task.proxies}
    return Work(kind, task, values, run, [place[leader] for leader in leaders], empty, known)


def _work_off(works: Sequence[Work], store: Store, progress: Progress) -> None:
    """Scores all chunks, beginning with one of each kind, so that there is an estimate of the time left early."""
    total = sum(len(work.values) for work in works)
    done = sum(len(work.known) for work in works)
    amounts: Counter[tuple[int, int]] = Counter()
    for work in works:
        amounts[work.kind] += len(work.values) - len(work.known)
    time_left = TimeLeft(amounts)
    progress(done, total, "")
    for work, chunk in _in_turn(works, time_left):
        start = time.perf_counter()
        work.score(chunk, store)
        new = len(chunk) - len(work.known.intersection(chunk))
        if new:
            time_left.add(work.kind, new, time.perf_counter() - start)
            done += new
            progress(done, total, f"scores, {time_left.text}")


def _in_turn(works: Sequence[Work], time_left: TimeLeft[tuple[int, int]]) -> Iterator[tuple[Work, range]]:
    """Chunks in order for each work, after a first chunk with new networks of each kind."""
    queues = [(work, work.chunks(time_left)) for work in works]
    met: set[tuple[int, int]] = set()
    for work, chunks in queues:
        while work.kind not in met and (chunk := next(chunks, None)) is not None:
            if not work.known.issuperset(chunk):
                met.add(work.kind)
            yield work, chunk
    for work, chunks in queues:
        for chunk in chunks:
            yield work, chunk
