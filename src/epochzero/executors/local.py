"""The local executor: networks are scored in this process."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from epochzero.executors.base import ScoredBatch
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task


class Local:
    """Scores in this process, on one thread or several, whichever is faster, unless a number is given."""

    elsewhere = False
    workers = 1

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads

    def about(self) -> dict[str, JSON]:
        from torch import get_num_threads

        return {"name": "local", "workers": 1, "threads": self.threads or get_num_threads()}

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        from epochzero.engine.threads import torch_threads

        with torch_threads(self.threads):
            return task.score(archs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


LOCAL = Local()
