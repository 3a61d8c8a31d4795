"""An estimate of the time left, from the time that each kind of work has taken so far."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)


class TimeLeft(Generic[Kind]):
    """Amounts of work left by kind, such as networks of one space. There is no estimate before all kinds were seen."""

    def __init__(self, amounts: Mapping[Kind, int]) -> None:
        self._left = dict(amounts)
        self._done = dict.fromkeys(amounts, 0)
        self._seconds = dict.fromkeys(amounts, 0.0)

    def add(self, kind: Kind, amount: int, seconds: float) -> None:
        """Counts an amount of work that took these seconds."""
        self._left[kind] -= amount
        self._done[kind] += amount
        self._seconds[kind] += seconds

    def amount_in(self, seconds: float, kind: Kind) -> int:
        """The amount of a kind that takes about these seconds, at least 1; 1 before any was done."""
        taken, done = self._seconds[kind], self._done[kind]
        return max(1, int(seconds * done / taken)) if taken else 1

    @property
    def seconds(self) -> float | None:
        """None before every kind with work left was seen."""
        kinds = [kind for kind, left in self._left.items() if left > 0]
        if any(self._done[kind] == 0 for kind in kinds):
            return None
        return sum(self._left[kind] * self._seconds[kind] / self._done[kind] for kind in kinds)

    @property
    def text(self) -> str:
        """`about 3 min left`"""
        if not any(self._left.values()):
            return "done"
        if (seconds := self.seconds) is None:
            return "time left not known yet"
        if seconds < 100:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / 60:.0f} min left" if seconds < 6000 else f"about {seconds / 3600:.1f} h left"
