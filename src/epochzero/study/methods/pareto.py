r"""NSGA-II: the networks that nothing beats in every objective at once, such as a proxy against latency.

The first `population` networks are drawn uniformly. Then each generation has as many children: two parents, each the
better of two drawn at random (an earlier front, then the less crowded), are crossed with probability `crossover`, and
the child is mutated with probability `mutation`, and always where it is not new by crossing alone. Parents and children
together are cut down to the population (`dominance.py`). No architecture is asked for twice.

Crossing is the space's own `crossover`; a space without one has children by mutation alone. A child beyond the limits
is left, and its first parent mutated instead. A network that lacks one of the scores is no parent. Told one number for
each network, it is an ordinary genetic algorithm.

Deb, Pratap, Agarwal, Meyarivan. A fast and elitist multiobjective genetic algorithm: NSGA-II. IEEE TEC 2002
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, runtime_checkable

import numpy as np

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Floats, OneByOne, Sampler, whole_of
from epochzero.study.methods.dominance import fittest, ranked

CHILD_TRIES = 50
MOST = 10**5


@runtime_checkable
class Crossing(Protocol):
    """A space in which two architectures have children."""

    def crossover(self, one: Any, other: Any, rng: Random) -> Any:
        """An architecture of the space whose every part is that of one parent or of the other."""


@searches.registers("pareto")
class Pareto(OneByOne):
    """NSGA-II with the space's own mutation and crossover."""

    several = True
    fewest = 2

    def __init__(
        self,
        space: Sampler,
        seed: int,
        *,
        population: int = 32,
        crossover: float = 0.9,
        mutation: float = 0.5,
        batch: int = 8,
    ) -> None:
        if not 2 <= population <= MOST:
            raise UserError(f"The search pareto has a population of 2 to {MOST:,} networks, not {population}.")
        for option, value in (("crossover", crossover), ("mutation", mutation)):
            if not 0 <= value <= 1:
                raise UserError(f"The search pareto takes a probability from 0 to 1 for '{option}', not {value:g}.")
        super().__init__(space, seed, batch)
        self.population, self.crossover, self.mutation = population, crossover, mutation
        self.fits: Callable[[Any], bool] = getattr(space, "fits", lambda arch: True)
        whole = whole_of(space)
        self.cross = whole.crossover if isinstance(whole, Crossing) else None
        self.parents: list[Any] = []
        self.merits: Floats = np.empty((0, 0))
        self.places: list[tuple[int, float]] = []
        """of each parent the number of its front, and minus its crowding"""
        self.told: list[tuple[Any, tuple[float, ...] | None]] = []
        """of this generation"""

    def tell(self, archs: Sequence[Any], merits: Sequence[float | Sequence[float] | None]) -> None:
        for arch, merit in zip(archs, merits, strict=True):
            row = None if merit is None else tuple(np.atleast_1d(np.asarray(merit, np.float64)).tolist())
            self.told.append((arch, row))
            if len(self.told) == self.population:
                self._select()

    def _select(self) -> None:
        """The end of a generation."""
        scored = [(arch, row) for arch, row in self.told if row is not None]
        self.told = []
        archs = [*self.parents, *(arch for arch, _ in scored)]
        if not archs:
            return
        rows = np.array([*map(tuple, self.merits), *(row for _, row in scored)], np.float64)
        kept = fittest(rows, self.population)
        self.parents, self.merits = [archs[i] for i in kept], rows[kept]
        rank, distance = ranked(self.merits)
        self.places = list(zip(rank.tolist(), (-distance).tolist(), strict=True))

    def _next(self) -> Any | None:
        child = self.unseen.draw(self._child, CHILD_TRIES) if self.parents else None
        return super()._next() if child is None else child

    def _child(self) -> Any:
        one, other = self._parent(), self._parent()
        if self.cross is None or self.rng.random() >= self.crossover:
            return self.space.mutate(one, self.rng)
        child = self.cross(one, other, self.rng)
        if child in self.unseen.seen or self.rng.random() < self.mutation:
            return self.space.mutate(child if self.fits(child) else one, self.rng)
        return child if self.fits(child) else self.space.mutate(one, self.rng)

    def _parent(self) -> Any:
        """The better of two."""
        two = (self.rng.randrange(len(self.parents)), self.rng.randrange(len(self.parents)))
        return self.parents[min(two, key=self.places.__getitem__)]
