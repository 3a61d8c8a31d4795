"""Spaces that are a product: at each of a fixed number of places, one of the same few choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Product(Generic[T]):
    """What a space knows of its architectures when each is a tuple of free choices."""

    choices: tuple[T, ...]
    """the cheapest first"""
    places: int

    def count(self) -> int:
        return int(len(self.choices) ** self.places)

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        """Every architecture once."""
        return itertools.product(self.choices, repeat=self.places)

    def sample(self, rng: Random) -> tuple[T, ...]:
        """Uniform over all architectures."""
        return tuple(rng.choices(self.choices, k=self.places))

    def mutate(self, arch: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """Another choice at one place, uniform over the neighbours."""
        place = rng.randrange(self.places)
        other = rng.choice([choice for choice in self.choices if choice != arch[place]])
        return (*arch[:place], other, *arch[place + 1 :])

    def crossover(self, one: tuple[T, ...], other: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """At each place the choice of one of the two, uniformly."""
        return tuple(rng.choice(pair) for pair in zip(one, other, strict=True))

    def neighbours(self, arch: tuple[T, ...]) -> list[tuple[T, ...]]:
        """Every architecture that differs at one place."""
        return [
            (*arch[:place], choice, *arch[place + 1 :])
            for place in range(self.places)
            for choice in self.choices
            if choice != arch[place]
        ]

    def smallest(self) -> tuple[T, ...]:
        """The architecture with the fewest parameters and multiply-accumulates."""
        return (self.choices[0],) * self.places
