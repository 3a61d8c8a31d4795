"""Bases of spaces in which an architecture is a tuple of independent choices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random
from typing import Generic, TypeVar

from epochzero.spaces.base import described, replaced

T = TypeVar("T")


class Choices(Generic[T]):
    """A space whose places may have different options."""

    def __repr__(self) -> str:
        return described(self)

    @property
    def options(self) -> tuple[tuple[T, ...], ...]:
        """The options of each place, the cheapest first."""
        raise NotImplementedError

    def count(self) -> int:
        return math.prod(map(len, self.options))

    def crossover(self, one: tuple[T, ...], other: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """Takes each choice from one of the two, uniformly."""
        return tuple(map(rng.choice, zip(one, other, strict=True)))

    def neighbours(self, arch: tuple[T, ...]) -> list[tuple[T, ...]]:
        """Returns every architecture that differs at one place."""
        places = enumerate(zip(arch, self.options, strict=True))
        return [replaced(arch, i, other) for i, (own, options) in places for other in options if other != own]

    def smallest(self) -> tuple[T, ...]:
        return tuple(options[0] for options in self.options)


class Product(Choices[T]):
    """A space with the same options at every place, which can be enumerated."""

    choices: tuple[T, ...]
    """options of each place, the cheapest first"""
    places: int

    @property
    def options(self) -> tuple[tuple[T, ...], ...]:
        return (self.choices,) * self.places

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        return itertools.product(*self.options)

    def sample(self, rng: Random) -> tuple[T, ...]:
        return tuple(rng.choices(self.choices, k=self.places))

    def mutate(self, arch: tuple[T, ...], rng: Random) -> tuple[T, ...]:
        """Changes the choice at one place, uniformly over the neighbours."""
        place = rng.randrange(self.places)
        return replaced(arch, place, rng.choice([choice for choice in self.choices if choice != arch[place]]))
