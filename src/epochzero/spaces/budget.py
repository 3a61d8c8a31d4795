"""A space cut down to the architectures that fit a budget, checked on the plan before anything is built.

Sampling by rejection is uniform over what fits, and mutation uniform over the neighbours that fit: the budget
biases neither more than it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.spaces.base import Space
from epochzero.types import Shape

TRIES = 20_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The most parameters and multiply-accumulates that a network may have; None is no limit."""

    max_params: int | None = None
    max_flops: int | None = None

    def limits(self) -> Iterator[tuple[str, str, int]]:
        """Each limit that is set: the plan's attribute, its name in words, the limit."""
        if self.max_params is not None:
            yield "params", "parameters", self.max_params
        if self.max_flops is not None:
            yield "flops", "multiply-accumulates", self.max_flops

    def fits(self, plan: Plan) -> bool:
        return all(getattr(plan, attribute) <= limit for attribute, _, limit in self.limits())


class BudgetedSpace:
    """A space in which every sample, mutation and neighbour fits the budget."""

    def __init__(self, space: Space, budget: Budget, num_classes: int, input_shape: Shape) -> None:
        self.space = space
        self.everything: Iterable[Any] = ()
        self.budget = budget
        smallest = space.plan(space.smallest(), num_classes, input_shape)
        for attribute, words, limit in budget.limits():
            if getattr(smallest, attribute) > limit:
                raise UserError(
                    f"No {space.name} network has at most {limit:,} {words}: "
                    f"the smallest has {getattr(smallest, attribute):,}."
                )

        limited = any(True for _ in budget.limits())

        @lru_cache(maxsize=100_000)
        def fits(arch: Any) -> bool:
            return not limited or budget.fits(space.plan(arch, num_classes, input_shape))

        self.fits = fits
        if isinstance(space, Iterable):
            self.everything = space

    def __iter__(self) -> Iterator[Any]:
        """Every architecture that fits, where the space can be enumerated; nothing where it cannot."""
        return (arch for arch in self.everything if self.fits(arch))

    def sample(self, rng: Random) -> Any:
        for _ in range(TRIES):
            arch = self.space.sample(rng)
            if self.fits(arch):
                return arch
        limits = " and ".join(f"{limit:,} {words}" for _, words, limit in self.budget.limits())
        raise UserError(
            f"None of {TRIES:,} {self.space.name} networks drawn at random has at most {limits}: raise the limit."
        )

    def mutate(self, arch: Any, rng: Random) -> Any:
        for _ in range(100):
            child = self.space.mutate(arch, rng)
            if self.fits(child):
                return child
        fitting = self.neighbours(arch)
        return rng.choice(fitting) if fitting else self.sample(rng)

    def neighbours(self, arch: Any) -> list[Any]:
        return [other for other in self.space.neighbours(arch) if self.fits(other)]
