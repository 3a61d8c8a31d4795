"""Where the time of a search goes: building, scoring, latency, and overhead, which is all the rest.

Building is planning networks to check them against the limits. Scoring is everything between an architecture and its
scores: building the network that is run, running it, and waiting for workers. Overhead is the search itself, ranks,
the store and this loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PARTS = ("building", "scoring", "latency")


class Clock:
    """Seconds by part, from when it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.spent = dict.fromkeys(PARTS, 0.0)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._start

    def timed(self, part: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function of one argument, its time counted as that part's."""

        def counted(argument: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(argument)
            finally:
                self.spent[part] += time.perf_counter() - start

        return counted

    def split(self, seconds: float) -> dict[str, float]:
        """These seconds in parts that add up to them."""
        return {**self.spent, "overhead": seconds - sum(self.spent.values())}
