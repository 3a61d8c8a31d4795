"""ZenNAS' evolution, as ZiCo uses it: any of the best networks so far is mutated.

The pool holds the best `population` networks; 512, and 480,000 iterations in the published search on CIFAR (100,000 on
ImageNet). While the pool holds ten networks or fewer, children come from one network, which is drawn here and written
by hand in the published codes. Then the parent is drawn uniformly from the pool, and mutated once or twice; the second
mutation may hit the place of the first, where the published codes draw distinct blocks. A network without a score is
the worst of all.

The published codes count children beyond the limits as iterations. Here they are drawn anew until one fits, so every
iteration is a network that is scored; and a few children are born at a time, for the sake of workers and GPUs.

Lin, Wang, Sun, Chen, Sun, Qian, Li, Jin. Zen-NAS. ICCV 2021. arXiv:2102.01063; Li, Yang, Bhardwaj, Marculescu. ZiCo.
ICLR 2023. arXiv:2301.11300
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Floats, OneByOne, Sampler, lowest

FOUNDERS = 10
"""networks in the pool up to which children come from the founder; asked for one by one, eleven do"""
CHILD_TRIES = 50
MUTATIONS = 2


@searches.registers("evolution_zen")
class ZenEvolution(OneByOne):
    """Parents are drawn uniformly from the best of all so far."""

    budget = 480_000

    def __init__(self, space: Sampler, seed: int, *, population: int = 512, batch: int = 8) -> None:
        if population < 1:
            raise UserError(f"A population has at least 1 network, not {population}.")
        super().__init__(space, seed, batch)
        self.population = population
        self.founder = space.sample(self.rng)
        self.all: list[Any] = []
        self.pool: list[tuple[float, int]] = []
        """merit and number, the worst first; of equals the older counts as the better"""

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        for arch, merit in zip(archs, lowest(merits), strict=True):
            self._join((merit, -len(self.all)))
            self.all.append(arch)

    def _join(self, member: tuple[float, int]) -> None:
        if len(self.pool) == self.population:
            if member <= self.pool[0]:
                return
            del self.pool[0]
        insort(self.pool, member)

    def revise(self, merits: Floats) -> None:
        size = min(self.population, len(merits))
        last = np.partition(merits, len(merits) - size)[len(merits) - size]  # the merit of the worst in the pool
        better = np.flatnonzero(merits > last)
        equal = np.flatnonzero(merits == last)[: size - len(better)]
        self.pool = sorted((float(merits[number]), -int(number)) for number in (*better, *equal))

    def _next(self) -> Any | None:
        child = self.unseen.draw(self._child, CHILD_TRIES)
        return super()._next() if child is None else child

    def _child(self) -> Any:
        if len(self.pool) <= FOUNDERS:
            return self.space.mutate(self.founder, self.rng)
        arch = self.all[-self.pool[self.rng.randrange(len(self.pool))][1]]
        for _ in range(self.rng.randint(1, MUTATIONS)):
            arch = self.space.mutate(arch, self.rng)
        return arch
