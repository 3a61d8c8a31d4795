"""How long the rest will take, from what each kind of work has taken so far.

Networks of one space take longer than those of another, so each kind of work has its own pace; what was found in a
store is no work and says nothing about it. Before every kind was met there is no estimate.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)


class Pace(Generic[Kind]):
    """Amounts of work still to be done, by kind."""

    def __init__(self, amounts: Mapping[Kind, int]) -> None:
        self._left = dict(amounts)
        self._done = dict.fromkeys(amounts, 0)
        self._seconds = dict.fromkeys(amounts, 0.0)

    def add(self, kind: Kind, amount: int, seconds: float) -> None:
        """So much of a kind was done in so many seconds."""
        self._left[kind] -= amount
        self._done[kind] += amount
        self._seconds[kind] += seconds

    def amount_in(self, seconds: float, kind: Kind) -> int:
        """How much of a kind so many seconds are enough for, at least 1; 1 before anything of it was done."""
        taken, done = self._seconds[kind], self._done[kind]
        return max(1, int(seconds * done / taken)) if taken else 1

    @property
    def seconds_left(self) -> float | None:
        """None while a kind with work left was not met yet."""
        kinds = [kind for kind, left in self._left.items() if left > 0]
        if any(self._done[kind] == 0 for kind in kinds):
            return None
        return sum(self._left[kind] * self._seconds[kind] / self._done[kind] for kind in kinds)

    @property
    def text(self) -> str:
        """`about 3 min left`"""
        if not any(self._left.values()):
            return "done"
        seconds = self.seconds_left
        if seconds is None:
            return "time left not known yet"
        if seconds < 100:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / 60:.0f} min left" if seconds < 6000 else f"about {seconds / 3600:.1f} h left"
