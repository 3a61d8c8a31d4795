"""The default executor: this process for a few networks, and all cores, by worker processes, for many.

Networks that are asked for together are scored on one thread each, here or in a worker, so that neither their number
nor the load of the machine changes a digit. Workers are started when the networks so far, and those still to come of
the same request, take longer than a start. On a GPU this process scores populations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from epochzero.engine.resources import copies
from epochzero.errors import MachineError, UserError
from epochzero.executors.base import Prepare, ScoredBatch
from epochzero.executors.local import Local
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.executors.processes import Processes
    from epochzero.study.task import Task

START = 4.0
"""seconds of scoring in this process from which workers are worth their start, about 2 seconds of each"""


class Auto(Local):
    """Scores here, or in worker processes if that is faster."""

    def __init__(self, threads: int | None = None, *, device: str = "cpu", prepare: Prepare | None = None) -> None:
        super().__init__(threads)
        self.prepare = prepare
        self._on_cpu = device.startswith("cpu")
        self._crew: Processes | None = None
        self._spent = 0.0
        """seconds of networks that workers could have shared"""
        self._singles = 0
        """requests for one network since there was one for several"""

    @cached_property
    def workers(self) -> int:  # type: ignore[override]
        """1 from when workers failed."""
        from epochzero.engine.threads import AT_FIRST

        return max(1, AT_FIRST // (self.threads or 1)) if self._on_cpu else 1

    def about(self) -> dict[str, JSON]:
        return super().about() | {"name": "auto", "workers": self.workers}

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        self._singles = self._singles + 1 if len(archs) == 1 else 0
        if self.workers < 2 or self._singles > 1:
            return super().score(task, archs)
        from epochzero.engine.threads import torch_threads

        with torch_threads(self.threads or 1):
            scored = self._here(task, archs)
            if rest := archs[len(scored) :]:
                try:
                    scored += self._started(len(rest)).score(task, rest)
                except (UserError, MachineError):  # workers may lack memory, or what this process has registered
                    self._stop()
                    self.workers = 1
                    scored += task.score(rest)
            return scored

    def _here(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        """The scores of the first architectures, up to the one from which workers are faster."""
        scored: ScoredBatch = []
        for i in range(len(archs)):
            left = len(archs) - i
            each = sum(seconds for _, seconds in scored) / max(1, i)
            if left > 1 and (self._crew is not None or self._spent + left * each > START):
                break
            start = time.perf_counter()
            scored += task.score(archs[i : i + 1])
            self._spent += time.perf_counter() - start if len(archs) > 1 else 0.0
        return scored

    def _started(self, networks: int) -> Processes:
        from epochzero.executors.processes import Processes

        if self._crew is None:
            self.workers = int(min(self.workers, networks, copies()))
            if self.workers < 2:
                raise MachineError("There is no memory for worker processes.")
            self._crew = Processes(self.workers, threads=self.threads or 1, prepare=self.prepare)
        return self._crew

    def _stop(self) -> None:
        if self._crew is not None:
            self._crew.__exit__(None, None, None)
            self._crew = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
