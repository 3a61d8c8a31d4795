"""Local search: look at all neighbours of a network, go to the best, start anew where none is better.

A climb starts at a network that is drawn uniformly. All its neighbours are told before the climb goes on, those that
were met before at no cost.

White, Nolen, Savani. Exploring the loss landscape in neural architecture search. UAI 2021. arXiv:2005.02960
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Floats, OneByOne, lowest


@searches.registers("local_search")
class LocalSearch(OneByOne):
    """Steepest ascent with restarts."""

    overlaps = False

    def __init__(self, space: Any, seed: int, *, batch: int = 8) -> None:
        if not hasattr(space, "neighbours"):
            raise UserError("The search local_search needs a space that knows an architecture's neighbours.")
        super().__init__(space, seed, batch)
        self.merits: dict[Any, float] = {}
        """of all that were told, in the order of telling"""
        self.here: Any = None
        self.around: list[Any] = []
        self.waiting: list[Any] = []
        """neighbours that are not told yet, the next one last"""

    def ask(self, n: int) -> list[Any]:
        if self.here is None:
            return super().ask(1)
        asked, self.waiting = self.waiting[-n:][::-1], self.waiting[:-n]
        return asked

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        self.merits.update(zip(archs, lowest(merits), strict=True))
        if self.here is None:
            self._go_to(archs[0])
        while self.here is not None and not self.waiting:
            best = max(self.around, key=self._merit, default=self.here)
            if self._merit(best) > self._merit(self.here):
                self._go_to(best)
            else:
                self.here = None

    def revise(self, merits: Floats) -> None:
        self.merits = dict(zip(self.merits, merits.tolist(), strict=True))

    def _merit(self, arch: Any) -> float:
        return self.merits.get(arch, -math.inf)

    def _go_to(self, arch: Any) -> None:
        self.here, self.around = arch, self.space.neighbours(arch)
        self.rng.shuffle(self.around)
        self.waiting = [other for other in dict.fromkeys(self.around) if other not in self.unseen.seen]
        self.unseen.seen.update(self.waiting)
