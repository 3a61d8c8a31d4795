"""Random search: every architecture is drawn uniformly, without repeats.

Li, Talwalkar. Random search and reproducibility for neural architecture search. UAI 2019. arXiv:1902.07638
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epochzero.registry import searches
from epochzero.study.methods.base import OneByOne, Sampler


@searches.registers("random")
class RandomSearch(OneByOne):
    """Draws uniformly and remembers nothing but what it drew."""

    several = True
    learns = False

    def __init__(self, space: Sampler, seed: int, *, batch: int = 16) -> None:
        super().__init__(space, seed, batch)

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """Nothing is learnt."""
