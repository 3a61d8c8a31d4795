"""Random search: every architecture is drawn uniformly, without repeats.

Li, Talwalkar. Random search and reproducibility for neural architecture search. UAI 2019. arXiv:1902.07638
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from epochzero.registry import searches
from epochzero.study.methods.base import Sampler, Unseen


@searches.registers("random")
class RandomSearch:
    """Draws uniformly and remembers nothing but what it drew."""

    several = True
    learns = False

    def __init__(self, space: Sampler, seed: int, *, batch: int = 16) -> None:
        self.space, self.rng, self.batch = space, Random(seed), batch
        self.unseen = Unseen()

    def ask(self, n: int) -> list[Any]:
        drawn = (self.unseen.sample(self.space, self.rng) for _ in range(n))
        return [arch for arch in drawn if arch is not None]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """Nothing is learnt."""
