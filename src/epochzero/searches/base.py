"""What a search is: it proposes architectures and is told how good they are. No torch, no networks, no proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

TRIES = 1000


class Sampler(Protocol):
    """What a search needs of a space."""

    def sample(self, rng: Random) -> Any: ...

    def mutate(self, arch: Any, rng: Random) -> Any: ...


class Search(Protocol):
    """Made with a space and a seed; `registry.searches` maps names to such makers."""

    batch: int
    """how many architectures it wants to be told of at a time, whatever the number of workers"""

    def ask(self, n: int) -> list[Any]:
        """At most n architectures, none of which was asked for before; none at all when there are no more."""

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """How good they are, higher is better; None for a network that has no score.

        A network may be told of again: its merit is then replaced.
        """


class Unseen:
    """Draws what has not been drawn before."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def left(self, space: Any) -> Any | None:
        """The first architecture of an enumerable space that was not drawn, or None."""
        rest = (arch for arch in iter(space) if arch not in self.seen) if hasattr(space, "__iter__") else iter(())
        found = next(rest, None)
        if found is not None:
            self.seen.add(found)
        return found

    def draw(self, make: Callable[[], Any], tries: int = TRIES) -> Any | None:
        """Something new that `make` makes, or None when it keeps making the same."""
        for _ in range(tries):
            made = make()
            if made not in self.seen:
                self.seen.add(made)
                return made
        return None
