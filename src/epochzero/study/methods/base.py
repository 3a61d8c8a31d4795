"""The interface of a search: it proposes architectures and is told their merits. No torch, networks or proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import UserError, needed

Floats = NDArray[np.float64]
TRIES = 1000


class Sampler(Protocol):
    """The part of a space that a search needs."""

    def sample(self, rng: Random) -> Any: ...

    def mutate(self, arch: Any, rng: Random) -> Any: ...


class Search(Protocol):
    """Made with a space and a seed; `registry.searches` maps names to such makers.

    Its keyword-only arguments are its options. A class attribute `budget` is how many networks the published search
    evaluates, where that is part of it, or a function of the space and all options that tells it; one `several` says
    that it may be told a tuple of merits for each network, and `fewest` how many there are at least; `learns` is False
    for one to which merits make no difference; `overlaps` is True for one that may be asked again before it is told the
    merits of what it was asked for, which it is told in the order of asking.
    """

    batch: int
    """architectures per ask and tell, whatever the number of workers"""

    def ask(self, n: int) -> list[Any]:
        """At most n architectures, none of which was asked for before; none at all when there are no more."""

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """The merits of architectures that were asked for, higher is better; None for one without a score."""


@runtime_checkable
class Revising(Protocol):
    """A search that accepts new merits for past networks, as ranks among all networks need."""

    def revise(self, merits: Floats) -> None:
        """The merits of all networks so far, in the order of telling; -inf for one without a score."""


@runtime_checkable
class Choosing(Protocol):
    """A search that names its winner itself; any other search's winner is its best network."""

    @property
    def chosen(self) -> Any | None:
        """The winner; None while there is none."""


@runtime_checkable
class Remarking(Protocol):
    """A search that knows more of its result than the winner."""

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences for the user, at the end."""


class Wanted(NamedTuple):
    """The pool that a search starts from."""

    proxies: Sequence[str]
    networks: int
    needed: bool = True
    """false: a proxy that has no score, or none for any network, may be missing"""


@dataclass(frozen=True)
class Pool:
    """Networks with known scores."""

    archs: Sequence[Any]
    values: Mapping[str, Floats]
    """by proxy; nan where a network has no score"""
    better: Mapping[str, bool]
    """by proxy, true if higher is better"""
    why: Mapping[str, str] = field(default_factory=dict)
    """the most frequent reason of each proxy without any score"""
    samples: int = 0
    """in the batch that the scores are of; 0: unknown, as of a table"""


@runtime_checkable
class Pooling(Protocol):
    """The maker of a search that chooses from a scored pool: it is made with a space, a seed and the pool."""

    @staticmethod
    def wants(options: Mapping[str, Any]) -> Wanted:
        """Which scores of how many networks, given all options."""


class Unseen:
    """Draws what has not been drawn before."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def first(self, made: Iterable[Any], fits: Callable[[Any], bool] = lambda arch: True) -> Any | None:
        """The first that was not drawn before and fits, or None."""
        for arch in made:
            if arch not in self.seen and fits(arch):
                self.seen.add(arch)
                return arch
        return None

    def draw(self, make: Callable[[], Any], tries: int = TRIES) -> Any | None:
        """Something new that `make` makes, or None when it keeps making the same."""
        return self.first(make() for _ in range(tries))

    def sample(self, space: Sampler, rng: Random) -> Any | None:
        """A new sample of the space; None when there is nothing left, or a space that cannot be listed has no more."""
        fresh = self.draw(lambda: space.sample(rng))
        return self.first(space if isinstance(space, Iterable) else ()) if fresh is None else fresh


class OneByOne:
    """A search that makes one architecture after the other; by default a new sample of the space."""

    overlaps = True

    def __init__(self, space: Any, seed: int, batch: int) -> None:
        self.space, self.rng, self.batch = space, Random(seed), batch
        self.unseen = Unseen()

    def ask(self, n: int) -> list[Any]:
        return [arch for arch in (self._next() for _ in range(n)) if arch is not None]

    def _next(self) -> Any | None:
        return self.unseen.sample(self.space, self.rng)


def whole_of(space: Any) -> Any:
    """The space that a part of it was made from."""
    while hasattr(space, "space"):
        space = space.space
    return space


@dataclass(frozen=True)
class Choices:
    """A space in which an architecture is one of the same few choices at each of a fixed number of places."""

    choices: tuple[Any, ...]
    places: int
    fits: Callable[[Any], bool]
    """true for an architecture within the limits"""

    @staticmethod
    def of(space: Any, search: str) -> Choices:
        """UserError for a space of another kind."""
        whole = whole_of(space)
        if not hasattr(whole, "choices") or not hasattr(whole, "places"):
            name = getattr(whole, "name", type(whole).__name__)
            raise UserError(
                f"The search {search} needs a space with the same choices at a fixed number of places, such as nb201 "
                f"or nats_sss, and {name} is none: use evolution, random or local_search."
            )
        return Choices(tuple(whole.choices), whole.places, getattr(space, "fits", lambda arch: True))


def lowest(merits: Sequence[float | None]) -> list[float]:
    """Merits as numbers: -inf where there is none."""
    return [-np.inf if merit is None else merit for merit in merits]


def bayesian(search: str, seed: int, acquisition: str, bounds: Mapping[str, tuple[float, float]]) -> Any:
    """An optimiser of a few numbers by a Gaussian process, for `search`; acquisition `ei` (xi = 0) or `ucb` (2.576)."""
    bayes_opt = needed("bayes_opt", f"The search {search}", "hnas")
    kinds = bayes_opt.acquisition
    chosen = kinds.ExpectedImprovement(xi=0.0) if acquisition == "ei" else kinds.UpperConfidenceBound(kappa=2.576)
    return bayes_opt.BayesianOptimization(
        f=None,
        acquisition_function=chosen,
        pbounds=dict(bounds),
        random_state=seed % 2**32,
        verbose=0,
        allow_duplicate_points=True,
    )
