"""Ageing evolution: a child of the best of a few replaces the oldest, not the worst.

The first `population` architectures are drawn uniformly. Then `tournament` of those alive are drawn, the best of
them is mutated, and the child joins as the youngest. A network without a score lives and ages like the others but
wins no tournament. No architecture is asked for twice.

Real, Aggarwal, Huang, Le. Regularized evolution for image classifier architecture search. AAAI 2019.
arXiv:1802.01548
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Floats, OneByOne, Sampler, lowest

CHILD_TRIES = 50
MOST = 10**9


@searches.registers("evolution")
class Evolution(OneByOne):
    """Regularised evolution by mutation alone."""

    def __init__(
        self, space: Sampler, seed: int, *, population: int = 50, tournament: int = 10, batch: int = 8
    ) -> None:
        if not 1 <= tournament <= population <= MOST:
            raise UserError(f"A tournament of {tournament} cannot be drawn from a population of {population}.")
        super().__init__(space, seed, batch)
        self.population, self.tournament = population, tournament
        self.alive: deque[tuple[float, Any]] = deque(maxlen=population)
        """merit and architecture, the oldest first"""
        self.born = 0

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        self.alive.extend(zip(lowest(merits), archs, strict=True))

    def revise(self, merits: Floats) -> None:
        living = merits[len(merits) - len(self.alive) :].tolist()
        self.alive = deque(zip(living, (arch for _, arch in self.alive), strict=True), self.population)

    def _next(self) -> Any | None:
        self.born += 1
        if self.born > self.population and self.alive:
            parent = self._parent()
            child = self.unseen.draw(lambda: self._child(parent), CHILD_TRIES)
            if child is not None:
                return child
        return super()._next()

    def _parent(self) -> Any:
        """The best of a few."""
        rivals = self.rng.sample(range(len(self.alive)), min(self.tournament, len(self.alive)))
        return max((self.alive[i] for i in rivals), key=lambda member: member[0])[1]

    def _child(self, parent: Any) -> Any:
        return self.space.mutate(parent, self.rng)
