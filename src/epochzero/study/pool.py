"""A search kept to the networks of a pool, and pools that are scored before a search begins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from random import Random
from typing import Any, NamedTuple

import numpy as np

from epochzero.engine import Proxy, parse
from epochzero.errors import UserError
from epochzero.executors.base import population
from epochzero.spaces.budget import BudgetedSpace
from epochzero.store import JSON, Run, Store
from epochzero.study.methods.base import Pool, Unseen, Wanted
from epochzero.study.result import enough_without
from epochzero.study.sources import TableSource
from epochzero.study.task import Task
from epochzero.types import Score

CHUNK, CHUNK_SECONDS = 16, 2.0
"""networks of a pool that are scored and stored at a time on a CPU, for each worker, at most; and how long they take"""


class PoolSpace:
    """The part of a space that a pool holds; samples are uniform over it."""

    def __init__(self, space: BudgetedSpace, candidates: Sequence[Any], source: str) -> None:
        self.space = space
        self.archs = list(dict.fromkeys(filter(space.fits, candidates)))
        if not self.archs:
            raise UserError(f"None of the {len(candidates):,} networks of {source} is within the limits.")
        self._held = frozenset(self.archs)
        self._known: dict[Any, list[Any]] = {}
        """of each architecture that was asked for, the neighbours"""

    def fits(self, arch: Any) -> bool:
        return arch in self._held

    def __iter__(self) -> Iterator[Any]:
        return iter(self.archs)

    def sample(self, rng: Random) -> Any:
        return rng.choice(self.archs)

    def mutate(self, arch: Any, rng: Random) -> Any:
        """One of the neighbours that the pool holds, uniformly; where it holds none, a sample."""
        around = self._around(arch)
        return rng.choice(around) if around else self.sample(rng)

    def neighbours(self, arch: Any) -> list[Any]:
        return list(self._around(arch))

    def _around(self, arch: Any) -> list[Any]:
        if arch not in self._known:
            self._known[arch] = [other for other in self.space.space.neighbours(arch) if other in self._held]
        return self._known[arch]


class ScoredPool(NamedTuple):
    """The part of a pool that was scored before time was up."""

    pool: Pool
    wanted: int
    """networks in the whole pool"""
    seconds: float
    """of scoring"""
    held: int
    """networks that the store had before"""


def scored_pool(
    task: Task,
    space: BudgetedSpace | PoolSpace,
    wanted: Wanted,
    seed: int,
    store: Store,
    progress: Callable[[int, int], None],
    time_left: Callable[[], float] = lambda: math.inf,
) -> ScoredPool:
    """Returns different networks of the space with the scores that a search needs, or as many as there is time for.

    Whatever the time, it continues until a network has all of these scores, or none of many does. UserError if one of
    the proxies gives none and is needed, which shows before all of a large pool is scored.
    """
    if wanted.networks < 1:
        raise UserError(f"A pool has at least 1 network, not {wanted.networks}.")
    proxies, why = [parse(text) for text in wanted.proxies], dict[str, str]()
    if not wanted.needed:
        proxies, why = _covered(task, proxies)
    part = replace(task, proxies=proxies)
    archs = _drawn(space, wanted.networks, seed)
    by_source = part.by_source()
    if len(by_source) == 1 and isinstance(by_source[0][0], TableSource):  # nothing to compute, and nothing to keep
        scores, seconds, held = [one for one, _ in by_source[0][0].score(part, archs)], 0.0, 0
    else:
        run = store.begin_run("pool", _identity(part, len(archs), seed), {})
        held = sum(1 for _ in takewhile(bool, part.held(archs, store)))
        scores, seconds = _scored(part, archs, held, store, run, progress, time_left, wanted.needed)
    if wanted.needed:
        _check_hope(part.proxies, scores, whole=True)
    better = {proxy.text: proxy.higher_is_better for proxy in part.proxies}
    values = {p.text: np.array([one[p.text].value for one in scores], np.float64) for p in part.proxies}
    why |= {p.text: _most_frequent([one[p.text] for one in scores]) for p in proxies if np.isnan(values[p.text]).all()}
    tabled = any(isinstance(source, TableSource) for source, _ in by_source)
    pool = Pool(archs[: len(scores)], values, better, why, 0 if tabled else part.batch.size)
    return ScoredPool(pool, len(archs), seconds, held)


def _covered(task: Task, proxies: Sequence[Proxy]) -> tuple[list[Proxy], dict[str, str]]:
    """Returns the proxies that the task's sources have, and the reasons why not of the others."""
    there, why = [], {}
    for proxy in proxies:
        try:
            replace(task, proxies=[proxy]).by_source()
            there.append(proxy)
        except UserError as error:
            why[proxy.text] = str(error)
    return there, why


def _drawn(space: BudgetedSpace | PoolSpace, networks: int, seed: int) -> list[Any]:
    """Returns that many different networks, or all there are, in random order."""
    rng, unseen = Random(seed), Unseen()
    if isinstance(space, PoolSpace) and networks >= len(space.archs):
        archs = list(space.archs)
        rng.shuffle(archs)
        return archs
    drawn = (unseen.sample(space, rng) for _ in range(networks))
    return [arch for arch in drawn if arch is not None]


def _identity(task: Task, networks: int, seed: int) -> dict[str, JSON]:
    return {
        "space": task.space.name,
        "networks": networks,
        "seed": seed,
        "proxies": [proxy.text for proxy in task.proxies],
        "batch": task.setting.batch,
        "origin": str(task.origin),
        "sources": [source.name for source in task.sources],
    }


def _scored(
    task: Task,
    archs: Sequence[Any],
    held: int,
    store: Store,
    run: Run,
    progress: Callable[[int, int], None],
    time_left: Callable[[], float],
    needed: bool,
) -> tuple[list[dict[str, Score]], float]:
    """The scores of the first networks, until one has all of them or none of many; and the seconds that they took.

    Networks that the store has come in one chunk, then few at first and as many as fit into seconds.
    """
    least = population(task.device) * task.executor.workers
    most = max(CHUNK * task.executor.workers, least)
    scored, total, size = list[dict[str, Score]](), 0.0, held or least
    while len(scored) < len(archs):
        progress(len(scored), len(archs))
        some = archs[len(scored) : len(scored) + size]
        scores, seconds = task.evaluate(some, store, run, len(scored))
        total += seconds
        scored += scores
        if needed:
            _check_hope(task.proxies, scored)
        left = time_left()
        whole = any((all if needed else any)(score.ok for score in one.values()) for one in scored)
        if left <= 0 and (whole or enough_without(len(scored), True)):
            break
        allowed = min(CHUNK_SECONDS, max(left, 0.0))
        fitting = min(2 * size, int(size * allowed / max(seconds, CHUNK_SECONDS / most)))
        size = least if len(scored) <= held else max(least, min(most, fitting // least * least))
    progress(len(scored), len(archs))
    return scored, total


def _check_hope(proxies: Sequence[Proxy], scored: Sequence[Mapping[str, Score]], whole: bool = False) -> None:
    """UserError, with the most frequent reason, where a proxy has no score for any network of the pool or of many."""
    for proxy in proxies:
        scores = [one[proxy.text] for one in scored]
        if any(score.ok for score in scores):
            continue
        if whole or enough_without(len(scores), any(score.status == "degenerate" for score in scores)):
            raise UserError(
                f"None of the first {len(scores)} networks of the pool has a {proxy.text} score; most often: "
                f"{_most_frequent(scores)}. Score the pool by another proxy."
            )


def _most_frequent(scores: Sequence[Score]) -> str:
    ((why, _),) = Counter(score.why for score in scores).most_common(1)
    return why
