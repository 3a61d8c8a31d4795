"""A space restricted to the architectures that fit a budget, checked before anything is built.

Samples have the distribution of the space's own `sample`, conditioned on the budget. If enough samples fit, the others
are rejected, which is exact. If hardly any fit, a space with `within` draws from the fitting architectures, which is
exact too. In any other space, a walk of 1,000 steps starts at the smallest network and never leaves the budget. Its
long-run distribution is the right one:

    a space with `redraw` proposes the steps, and a step that does not fit is not taken;
    else a neighbour b of a is drawn uniformly and, if it fits, taken with probability min(1, deg a / deg b), where
    deg counts neighbours (Metropolis and Hastings): uniform if neighbourhood is mutual.

A walk reaches only architectures that are connected within the budget. Mutations are the space's own, if they fit.

Limits of memory are checked last, since they cost more to check: of a plan, its values are followed (`plan/memory.py`).

Hastings. Monte Carlo sampling methods using Markov chains and their applications. Biometrika, 1970.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from epochzero.errors import UserError
from epochzero.quantities import count
from epochzero.spaces.base import AnySpace, GivesPlans, Measured
from epochzero.types import WIDTH, Footprint, Shape

Cost = Literal["params", "flops"]
Remember = Callable[[Any], Footprint]
"""the memory of an architecture"""
PILOT, ENOUGH = 1000, 3
"""number of trial samples, and the number that must fit for rejection to be faster than a walk"""
WORDS = {"weight_bytes": "weights", "activation_bytes": "activations", "peak_memory": "peak memory"}
TRIES = 20_000
LISTED = 2000
"""networks of a list that are searched for one within a limit of memory"""
STEPS = 1000
MUTATIONS = 100


class Size(NamedTuple):
    """The quantities that a budget limits."""

    params: int
    flops: int


@runtime_checkable
class Sizing(Protocol):
    """A space that computes the size of a network without its plan."""

    def size(self, arch: Any, num_classes: int, input_shape: Shape) -> Size:
        """Returns the plan's `params` and `flops`."""


@runtime_checkable
class Caching(Protocol):
    """A space of language models, which keep keys and values of the tokens so far."""

    def kv_values(self, arch: Any, input_shape: Shape) -> int:
        """Returns the number of values that are kept for a row of tokens."""


@runtime_checkable
class Redrawing(Protocol):
    """A space that proposes the steps of a walk."""

    def redraw(self, arch: Any, rng: Random) -> Any:
        """Redraws part of the architecture: a reversible step that keeps the distribution of `sample`."""


@runtime_checkable
class Listing(Protocol):
    """A space that can list all architectures within a tight budget."""

    def within(self, budget: Budget, num_classes: int, input_shape: Shape) -> Callable[[Random], Any]:
        """Returns a sampler like `sample`, conditioned on the budget, which at least one architecture fits."""


@runtime_checkable
class Extremes(Protocol):
    """A space in which no single network has both the fewest parameters and multiply-accumulates."""

    def least(self, cost: Cost, num_classes: int, input_shape: Shape) -> Any:
        """Returns the architecture with the fewest parameters, or with the fewest multiply-accumulates."""


def least_of(space: AnySpace, cost: Cost, num_classes: int, input_shape: Shape) -> Any:
    """Returns the architecture with the least of one cost."""
    return space.least(cost, num_classes, input_shape) if isinstance(space, Extremes) else space.smallest()


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper limits of parameters, multiply-accumulates and memory for one sample; None for no limit."""

    max_params: int | None = None
    max_flops: int | None = None
    max_weight_bytes: int | None = None
    max_activation_bytes: int | None = None
    max_peak_memory: int | None = None
    """bytes of weights and activations together"""
    max_kv_bytes: int | None = None
    """bytes of the keys and values that a language model keeps for a row of tokens"""
    byte_width: int = WIDTH
    """bytes of a weight, an activation or a kept value: 4 in single precision, 1 in 8 bits"""

    @staticmethod
    def given(settings: Any, start: str = "--") -> Budget:
        """From attributes of these names, which may be texts such as 300k; errors call them with this start."""
        names = [one.name for one in fields(Budget) if one.name != "byte_width"]
        option = {name: f"{start}{name.replace('_', '-') if start else name}" for name in names}
        width = settings.byte_width
        if width not in (1, 2, 4, 8):
            raise UserError(f"{start}byte{'-' if start else '_'}width takes 1, 2, 4 or 8 bytes, not {width!r}.")
        return Budget(**{name: count(getattr(settings, name), option[name]) for name in names}, byte_width=width)

    def limits(self) -> Iterator[tuple[Cost, str, int]]:
        """Yields each limit: the plan's attribute, its name in words, the limit."""
        if self.max_params is not None:
            yield "params", "parameters", self.max_params
        if self.max_flops is not None:
            yield "flops", "multiply-accumulates", self.max_flops

    def memory_limits(self) -> dict[str, int]:
        """The limits of memory by the names in `Footprint.facts`."""
        names = ("weight_bytes", "activation_bytes", "peak_memory")
        limits = {name: getattr(self, f"max_{name}") for name in names}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def facts(self) -> dict[str, int]:
        """The limits that there are, and the byte width if one of them is in bytes."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        if not self.memory_limits() and self.max_kv_bytes is None:
            del given["byte_width"]
        return {name: value for name, value in given.items() if value is not None}

    def fits(self, network: Measured) -> bool:
        return all(getattr(network, attribute) <= limit for attribute, _, limit in self.limits())

    def holds(self, memory: Footprint) -> bool:
        """True if the memory is within its limits."""
        facts = memory.facts(self.byte_width)
        return all(facts[name] <= limit for name, limit in self.memory_limits().items())


class BudgetedSpace:
    """A space in which every sample, mutation and neighbour fits the budget."""

    def __init__(
        self,
        space: AnySpace,
        budget: Budget,
        num_classes: int,
        input_shape: Shape,
        size: Callable[[Any], Measured] | None = None,
        memory: Remember | None = None,
    ) -> None:
        """`size` and `memory` are those of a network, for a space that has neither plans nor `size`."""
        self.space = space
        self.everything: Iterable[Any] = space if isinstance(space, Iterable) else ()
        self.budget = budget
        self.limits = list(budget.limits())
        self.num_classes, self.input_shape = num_classes, input_shape
        self.fits: Callable[[Any], bool] = lambda arch: True
        self.limited = bool(self.limits or budget.memory_limits() or budget.max_kv_bytes is not None)
        self._seen: list[Any] = []
        """trial samples that fit"""
        if not self.limited:
            return
        measured = size or self._counted() if self.limits else lambda arch: Size(0, 0)
        self.remember = memory or self._followed
        for cost, words, limit in self.limits:
            least = getattr(measured(least_of(space, cost, num_classes, input_shape)), cost)
            if least > limit:
                raise UserError(f"No {space.name} network has at most {limit:,} {words}: the smallest has {least:,}.")

        caches_little = self._caching(budget.max_kv_bytes)

        def fits(arch: Any) -> bool:
            if not caches_little(arch) or not budget.fits(measured(arch)):
                return False
            return not budget.memory_limits() or budget.holds(self.remember(arch))

        self.fits = lru_cache(maxsize=100_000)(fits)

    def _caching(self, limit: int | None) -> Callable[[Any], bool]:
        """Returns whether the keys and values that an architecture keeps are within the limit."""
        if limit is None:
            return lambda arch: True
        space, shape, width = self.space, self.input_shape, self.budget.byte_width
        if not isinstance(space, Caching):
            raise UserError(f"Networks of {space.name} keep no keys and values: leave the limit of them out.")
        if (least := width * space.kv_values(space.smallest(), shape)) > limit:
            words = "bytes of keys and values"
            raise UserError(f"No {space.name} network keeps at most {limit:,} {words}: the smallest keeps {least:,}.")
        return lambda arch: width * space.kv_values(arch, shape) <= limit

    def _followed(self, arch: Any) -> Footprint:
        if not isinstance(self.space, GivesPlans):
            raise UserError(f"The space '{self.space.name}' has no plans to follow the memory of: limit parameters.")
        from epochzero.plan.memory import footprint  # needs torch

        return footprint(self.space.plan(arch, self.num_classes, self.input_shape))

    def _counted(self) -> Callable[[Any], Measured]:
        space, network = self.space, (self.num_classes, self.input_shape)
        if isinstance(space, Sizing):
            return lambda arch: space.size(arch, *network)
        if isinstance(space, GivesPlans):
            return lambda arch: space.plan(arch, *network)
        raise UserError(f"The space '{space.name}' does not know the size of its networks: search without a limit.")

    def __iter__(self) -> Iterator[Any]:
        """Every architecture that fits, if the space can be enumerated; otherwise nothing."""
        return (arch for arch in self.everything if self.fits(arch))

    @cached_property
    def roomy(self) -> bool:
        """True if enough of the space's samples fit for rejection sampling. The same on every run."""
        rng = Random(0)
        for _ in range(PILOT):
            arch = self.space.sample(rng)
            if self.fits(arch):
                self._seen.append(arch)
            if len(self._seen) == ENOUGH:
                return True
        return False

    def sample(self, rng: Random) -> Any:
        """Samples like the space, conditioned on the budget."""
        for _ in range(TRIES if not self.limited or self.roomy else 0):
            arch = self.space.sample(rng)
            if self.fits(arch):
                return arch
        return self.sample_few(rng)

    @cached_property
    def sample_few(self) -> Callable[[Random], Any]:
        """The sampler when rejection is hopeless; UserError if nothing fits."""
        if self.fits(self.start) and isinstance(self.space, Listing) and not self.budget.memory_limits():
            return self.space.within(self.budget, self.num_classes, self.input_shape)
        return self.walk

    @cached_property
    def start(self) -> Any:
        """A small network that fits."""
        ends = (least_of(self.space, cost, self.num_classes, self.input_shape) for cost, _, _ in self.limits)
        smallest = self.space.smallest()
        memory = self.budget.memory_limits()
        rest = itertools.islice(self.everything, LISTED) if memory else self.everything
        for arch in itertools.chain(ends, [smallest], self._seen, rest):
            if self.fits(arch):
                return arch
        limits = [f"{limit:,} {words}" for _, words, limit in self.limits]
        limits += [f"{limit:,} bytes of {WORDS[name]}" for name, limit in memory.items()]
        has = ""
        if memory:
            facts = self.remember(smallest).facts(self.budget.byte_width)
            has = f" (the smallest has {', '.join(f'{facts[name]:,} of {WORDS[name]}' for name in memory)})"
        most = " and ".join(limits) + has
        raise UserError(f"No {self.space.name} network was found that has at most {most}: raise one of the limits.")

    def walk(self, rng: Random, steps: int = STEPS) -> Any:
        """Returns the end of a walk that starts at a small network and never leaves the budget."""
        arch = self.start
        if isinstance(self.space, Redrawing):
            for _ in range(steps):
                child = self.space.redraw(arch, rng)
                arch = child if self.fits(child) else arch
            return arch
        around = self.space.neighbours(arch)
        for _ in range(steps if around else 0):
            child = rng.choice(around)
            if self.fits(child):
                back = self.space.neighbours(child)
                if rng.random() * len(back) < len(around):
                    arch, around = child, back
        return arch

    def mutate(self, arch: Any, rng: Random) -> Any:
        """Mutates like the space, conditioned on the budget; if no neighbour fits, draws a new sample."""
        for _ in range(MUTATIONS):
            child = self.space.mutate(arch, rng)
            if self.fits(child):
                return child
        around = self.space.neighbours(arch)
        rng.shuffle(around)
        fitting = next(filter(self.fits, around), None)
        return self.sample(rng) if fitting is None else fitting

    def neighbours(self, arch: Any) -> list[Any]:
        return [other for other in self.space.neighbours(arch) if self.fits(other)]
