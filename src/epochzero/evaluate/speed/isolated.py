"""Measurements in a process of their own, with a limit of time: one that hangs, dies or fails leaves a reason.

The process keeps its batches, kernels and worker processes from one measurement to the next. One that had to be ended
is replaced by a spare, which is started beforehand: loading torch and finding a GPU take seconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from epochzero.data import Batch
from epochzero.errors import MachineError
from epochzero.evaluate.speed import mbconv
from epochzero.evaluate.speed.timing import Job
from epochzero.executors.worker import freeze_garbage

BEGIN = 90.0
"""seconds in which a process has to be ready"""


class _Child(NamedTuple):
    process: Any
    pipe: Connection


class Isolated:
    """Runs functions of jobs. A context manager: its processes end with it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._context = multiprocessing.get_context("spawn")
        self._now, self._spare = self._started(), self._started()

    def run(self, function: Callable[[Job], Any], job: Job, seconds: float) -> Any:
        """Returns the function's value; MachineError says why there is none."""
        self._wait(BEGIN, "start")
        try:
            self._now.pipe.send((function, job))
            good, answer = self._wait(seconds, "measurement")
        except (EOFError, OSError):
            self._now.process.join(5)
            code = self._now.process.exitcode
            self.refresh()
            raise MachineError(f"The process ended with exit code {code}.") from None
        if not good:
            if "CUDA" in answer:  # such a process may not find its GPU again
                self.refresh()
            raise MachineError(answer)
        return answer

    def _wait(self, seconds: float, what: str) -> Any:
        if not self._now.pipe.poll(seconds):
            self.refresh()
            raise MachineError(f"The {what} took more than {seconds:.0f} s.")
        return self._now.pipe.recv()

    def refresh(self) -> None:
        """Goes on with the spare, which has all memory of the device."""
        self._now.process.kill()
        self._now.process.join()
        self._now, self._spare = self._spare, self._started()

    def _started(self) -> _Child:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self.device), daemon=True)
        process.start()
        theirs.close()
        return _Child(process, ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in (self._now, self._spare):
            child.process.kill()
            child.process.join()


def _serve(pipe: Connection, device: str) -> None:
    """Runs one function of a job after another, until the pipe closes."""
    freeze_garbage()
    mbconv.register()
    torch.ones(1, device=device)
    batches: dict[str, Batch] = {}
    while True:
        pipe.send("ready")
        try:
            function, job = pipe.recv()
        except EOFError:
            return
        try:
            batch = batches.setdefault(job.batch.id, job.batch)
            answer = True, function(replace(job, batch=batch))
        except Exception as error:
            said = (str(error).strip() or "no message").splitlines()[0]
            answer = False, said if isinstance(error, MachineError) else f"{type(error).__name__}: {said}"
        pipe.send(answer)
