"""A search kept to the networks of a pool, and pools that are scored before a search begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from epochzero.engine import Proxy, parse
from epochzero.errors import UserError
from epochzero.run.executors.base import population
from epochzero.run.sources import TableSource
from epochzero.run.task import Task
from epochzero.searches.base import Floats, Pool, Unseen, Wanted
from epochzero.spaces.budget import BudgetedSpace
from epochzero.store import JSON, Store
from epochzero.types import Score

CHUNK = 16
"""networks of a pool that are scored and stored at a time on a CPU, for each worker"""


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


def scored_pool(
    task: Task,
    space: BudgetedSpace | PoolSpace,
    wanted: Wanted,
    seed: int,
    store: Store,
    progress: Callable[[int, int], None],
) -> tuple[Pool, float]:
    """So many different networks of the space with the scores that a search wants; and the seconds of scoring."""
    if wanted.networks < 1:
        raise UserError(f"A pool has at least 1 network, not {wanted.networks}.")
    proxies = [parse(text) for text in wanted.proxies]
    if isinstance(space, PoolSpace) and wanted.networks >= len(space.archs):
        archs = list(space.archs)
        Random(seed).shuffle(archs)
    else:
        rng, unseen = Random(seed), Unseen()
        drawn = (unseen.sample(space, rng) for _ in range(wanted.networks))
        archs = [arch for arch in drawn if arch is not None]
    part = replace(task, proxies=proxies)
    better = {p.text: p.higher_is_better for p in proxies}
    by_source = part.by_source()
    if len(by_source) == 1 and isinstance(by_source[0][0], TableSource):  # nothing to compute, and nothing to keep
        found = [scores for scores, _ in by_source[0][0].score(part, archs)]
        return Pool(archs, _columns(proxies, found), better), 0.0
    identity: dict[str, JSON] = {
        "space": task.space.name,
        "networks": len(archs),
        "seed": seed,
        "proxies": [p.text for p in proxies],
        "batch": task.batch.id,
        "origin": str(task.origin),
        "sources": [source.name for source in task.sources],
    }
    run = store.begin_run("pool", identity, {})
    found, total = [], 0.0
    step = max(CHUNK, population(task.device)) * task.executor.workers
    for first in range(0, len(archs), step):
        progress(first, len(archs))
        scores, seconds = part.evaluate(archs[first : first + step], store, run, first)
        found += scores
        total += seconds
    progress(len(archs), len(archs))
    return Pool(archs, _columns(proxies, found), better), total


def _columns(proxies: Sequence[Proxy], scores: Sequence[Mapping[str, Score]]) -> dict[str, Floats]:
    """By proxy, nan where there is no score."""
    return {p.text: np.array([one[p.text].value for one in scores], np.float64) for p in proxies}
