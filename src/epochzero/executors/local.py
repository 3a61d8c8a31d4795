"""The local executor: networks are scored in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from epochzero.executors.base import ScoredBatch
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task


class Local:
    """Scores in this process, with torch's number of threads unless another is given."""

    elsewhere = False
    workers = 1

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads

    def about(self) -> dict[str, JSON]:
        from torch import get_num_threads

        return {"name": "local", "workers": 1, "threads": self.threads or get_num_threads()}

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        with torch_threads(self.threads):
            return task.score(archs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Gives torch this number of threads inside the block; None leaves them as they are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


LOCAL = Local()
