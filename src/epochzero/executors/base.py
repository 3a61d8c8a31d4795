"""The interface of an executor, and how work is cut into chunks.

An executor scores architectures and does nothing else: the loop asks, tells and writes to the store, in an order and in
batches that do not depend on it. So the same search by another executor, or by another number of workers, ends with the
same store, the same history and the same winner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

from epochzero.store import JSON
from epochzero.types import Score

if TYPE_CHECKING:
    from epochzero.study.task import Task

T = TypeVar("T")

ScoredBatch = list[tuple[dict[str, Score], float]]
"""of each architecture the scores by proxy, and the seconds that they took"""

Prepare = Callable[[], object]
"""run in every worker before its first score: a function of a module, or a `partial` of one, for it travels by name"""

LARGEST = 64
"""architectures in one chunk, which is what a lost worker costs: on a GPU, in every chunk but the last"""


class Executor(Protocol):
    """Scores architectures somewhere. A context manager: what it started is gone when it is left."""

    elsewhere: bool
    """True if it works on other machines, which may have devices that this one lacks"""

    @property
    def workers(self) -> int:
        """The number of architectures that it can score at once."""

    def about(self) -> dict[str, JSON]:
        """Facts recorded with a run."""

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        """The scores of each architecture, in the order given."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Announced(Protocol):
    """An executor that may be told of architectures before their scores are asked for."""

    def begin(self, task: Task, archs: Sequence[Any]) -> None:
        """Starts to score them; `score` with the same task and architectures then waits for the scores."""


def population(device: str) -> int:
    """The most networks that run together if memory allows; one on a CPU, where the gain is small."""
    from epochzero.engine.population.grouping import POPULATION

    return 1 if device == "cpu" else POPULATION


LEAST = 0.05
"""seconds that a chunk should take at least"""
BUSY = 0.5
"""the share of its time that the parent process may spend on sending and receiving chunks"""
MOST_ROUNDS = 8


def rounds_of(networks: int, workers: int, seconds: float, cost: float) -> int:
    """The number of chunks for each worker of a batch, where a chunk costs the parent that many seconds.

    Many balance well. But workers that all take `seconds` a network ask the parent for a chunk the more often, the more
    of them there are.
    """
    least = max(LEAST, workers * cost / BUSY)
    return max(1, min(MOST_ROUNDS, int(networks / workers * seconds / least)))


def chunks(items: Sequence[T], workers: int, device: str, rounds: int) -> list[Sequence[T]]:
    """The items in order, cut so that each worker has a chunk in each of `rounds` rounds.

    In single precision a network's neighbours may move its score by a rounding. So on a GPU chunks are of one size,
    whatever the number of workers and rounds.
    """
    share = -(-len(items) // (workers * rounds))
    size = max(1, min(LARGEST, share)) if device == "cpu" else LARGEST
    return [items[first : first + size] for first in range(0, len(items), size)]
