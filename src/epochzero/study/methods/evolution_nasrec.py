r"""NASRec's evolution, as SiGeo uses it: eight children of one parent at a time, mutated less and less.

128 architectures are drawn uniformly. In each of 240 generations the best of 64 of those alive has 8 children, which
replace the 8 oldest; a child is its parent after

    m = (240 - generation) // max(20, 240 // 5) + 1         6 in the beginning, 1 in the end

mutations in a row, and none that was seen before: 128 + 240 * 8 = 2,048 networks. The published codes then train the
best 15 (`--top 15`) of a history that holds the two best children of each generation; here they are the best of all.

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
"""

from __future__ import annotations

from typing import Any

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Sampler
from epochzero.study.methods.evolution import Evolution


@searches.registers("evolution_nasrec")
class NASRecEvolution(Evolution):
    """Ageing evolution in generations with a schedule of mutations."""

    budget = 2048

    def __init__(
        self,
        space: Sampler,
        seed: int,
        *,
        population: int = 128,
        generations: int = 240,
        tournament: int = 64,
        children: int = 8,
    ) -> None:
        super().__init__(space, seed, population=population, tournament=tournament, batch=children)
        if generations < 1:
            raise UserError(f"The search evolution_nasrec has at least 1 generation, not {generations}.")
        self.generations = generations
        self._chosen: Any = None

    @property
    def generation(self) -> int:
        """From 0, that of the architecture that is being born."""
        return (self.born - self.population - 1) // self.batch

    @property
    def mutations(self) -> int:
        """The number of mutations in a row that make a child."""
        left = max(0, self.generations - self.generation)
        return left // max(20, self.generations // 5) + 1

    def _parent(self) -> Any:
        if (self.born - self.population - 1) % self.batch == 0 or self._chosen is None:
            self._chosen = super()._parent()
        return self._chosen

    def _child(self, parent: Any) -> Any:
        for _ in range(self.mutations):
            parent = self.space.mutate(parent, self.rng)
        return parent
