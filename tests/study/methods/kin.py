"""Spaces for tests of searches: one in which a child names its ancestors, and one whose best network is known."""

from __future__ import annotations

from random import Random

from epochzero.spaces.product import Product

Line = tuple[int, ...]


class Family:
    """An architecture is the list of its ancestors, so that a child names its parent."""

    name = "family"

    def sample(self, rng: Random) -> Line:
        return (rng.randrange(10**9),)

    def mutate(self, arch: Line, rng: Random) -> Line:
        return (*arch, rng.randrange(10**9))


class Digits(Product[int]):
    """Six digits of five; the sum is the merit, so that (4, 4, 4, 4, 4, 4) is the best."""

    name = "digits"
    choices = (0, 1, 2, 3, 4)
    places = 6
