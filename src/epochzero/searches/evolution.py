"""Ageing evolution: a child of the best of a few replaces the oldest, not the worst.

The first `population` architectures are drawn uniformly. Then `tournament` of those alive are drawn, the best of
them is mutated, and the child joins as the youngest. A network without a score lives and ages like the others but
wins no tournament. No architecture is asked for twice.

Real, Aggarwal, Huang, Le. Regularized evolution for image classifier architecture search. AAAI 2019.
arXiv:1802.01548
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.searches.base import Sampler, Unseen

CHILD_TRIES = 50
MOST = 10**9


@searches.registers("evolution")
class Evolution:
    """Regularised evolution by mutation alone."""

    def __init__(
        self, space: Sampler, seed: int, *, population: int = 50, tournament: int = 10, batch: int = 8
    ) -> None:
        if not 1 <= tournament <= population <= MOST:
            raise UserError(f"A tournament of {tournament} cannot be drawn from a population of {population}.")
        if batch < 1:
            raise UserError(f"Evolution asks for at least 1 architecture at a time, not {batch}.")
        self.space, self.rng, self.batch = space, Random(seed), batch
        self.population, self.tournament = population, tournament
        self.alive: deque[tuple[float, Any]] = deque(maxlen=population)
        self.told: set[Any] = set()
        self.born = 0
        self.unseen = Unseen()

    def ask(self, n: int) -> list[Any]:
        return [arch for arch in (self._next() for _ in range(n)) if arch is not None]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        now = {arch: -math.inf if merit is None else merit for arch, merit in zip(archs, merits, strict=True)}
        if not self.told.isdisjoint(now):
            self.alive = deque(((now.get(arch, old), arch) for old, arch in self.alive), self.population)
        self.alive.extend((merit, arch) for arch, merit in now.items() if arch not in self.told)
        self.told.update(now)

    def _next(self) -> Any | None:
        self.born += 1
        if self.born > self.population and self.alive:
            rivals = self.rng.sample(range(len(self.alive)), min(self.tournament, len(self.alive)))
            _, parent = max((self.alive[i] for i in rivals), key=lambda member: member[0])
            child = self.unseen.draw(lambda: self.space.mutate(parent, self.rng), CHILD_TRIES)
            if child is not None:
                return child
        fresh = self.unseen.draw(lambda: self.space.sample(self.rng))
        return self.unseen.left(self.space) if fresh is None else fresh
