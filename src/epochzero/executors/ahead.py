"""Batches that are scored while the search waits for an earlier one: see `epochzero.study.batches`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from epochzero.executors.base import Executor, ScoredBatch
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task


class Ahead:
    """An executor whose batches are announced: each is a thread that waits for its workers."""

    def __init__(self, executor: Executor, batches: int) -> None:
        self.executor, self.elsewhere = executor, executor.elsewhere
        self._threads = ThreadPoolExecutor(batches, "batch")
        self._under_way: dict[tuple[str, ...], Future[ScoredBatch]] = {}

    @property
    def workers(self) -> int:
        return self.executor.workers

    def about(self) -> dict[str, JSON]:
        return self.executor.about()

    def begin(self, task: Task, archs: Sequence[Any]) -> None:
        self._under_way[_key(task, archs)] = self._threads.submit(self.executor.score, task, archs)

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        begun = self._under_way.pop(_key(task, archs), None)
        return self.executor.score(task, archs) if begun is None else begun.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forgets what is under way: its scores come to nothing, as those of a killed run."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _key(task: Task, archs: Sequence[Any]) -> tuple[str, ...]:
    return (*(proxy.text for proxy in task.proxies), *map(task.space.text, archs))


def announced(executor: Executor, ahead: int) -> AbstractContextManager[Executor]:
    """The executor, which takes announcements if it has workers for several batches; any other scores when asked."""
    if ahead and getattr(executor, "shared", False):
        return Ahead(executor, ahead + 1)
    return nullcontext(executor)
