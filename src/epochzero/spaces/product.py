"""Product spaces: one of the same few choices at each of a fixed number of places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Product(Generic[T]):
    """A base of spaces in which an architecture is a tuple of independent choices."""

    choices: tuple[T, ...]
    """options of each place, the cheapest first"""
    places: int

    def count(self) -> int:
        return int(len(self.choices) ** self.places)

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        """Every architecture once."""
        return itertools.product(self.choices, repeat=self.places)

    def sample(self, rng: Random) -> tuple[T, ...]:
        """Draws uniformly from all architectures."""
        return tuple(rng.choices(self.choices, k=self.places))

    def mutate(self, arch: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """Changes the choice at one place, uniformly over the neighbours."""
        place = rng.randrange(self.places)
        other = rng.choice([choice for choice in self.choices if choice != arch[place]])
        return (*arch[:place], other, *arch[place + 1 :])

    def crossover(self, one: tuple[T, ...], other: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """Takes each choice from one of the two, uniformly."""
        return tuple(rng.choice(pair) for pair in zip(one, other, strict=True))

    def neighbours(self, arch: tuple[T, ...]) -> list[tuple[T, ...]]:
        """Returns every architecture that differs at one place."""
        return [
            (*arch[:place], choice, *arch[place + 1 :])
            for place in range(self.places)
            for choice in self.choices
            if choice != arch[place]
        ]

    def smallest(self) -> tuple[T, ...]:
        """Returns the architecture with the fewest parameters and multiply-accumulates."""
        return (self.choices[0],) * self.places
