"""Worker processes on this machine: all cores, one store.

Each worker is a Python process of its own with one thread for torch, fed by a thread of this process over pipes. A
worker that dies takes nothing with it: a fresh one gets its chunk. Workers end when their pipe does, so none outlives
this process, however it ends.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, LifoQueue
from tempfile import TemporaryDirectory
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from epochzero.engine.resources import cores
from epochzero.executors.base import Prepare, ScoredBatch, chunks
from epochzero.executors.worker import WORKERS_ROOM, Answer, Failure, Key, Recipe, Share, key_of, lost
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task

ROUNDS = 4
"""chunks for each worker of a batch: they cost little, and many balance well"""
TRIES = 3
"""workers that may die on one chunk before it is given up"""
PROGRAM = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from epochzero.executors.process_worker import main\n"
    "main()"
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Processes:
    """Scores in worker processes, as many as this process may use cores unless a number is given."""

    elsewhere = False
    shared = True
    """may be asked by several threads at once"""

    def __init__(self, workers: int | None = None, *, threads: int = 1, prepare: Prepare | None = None) -> None:
        self.workers = workers or cores()
        self.threads, self.prepare = threads, prepare
        self._recipes: dict[Key, bytes] = {}
        self._idle: LifoQueue[_Worker] = LifoQueue()
        self._all: set[_Worker] = set()
        self._closed, self._lock = False, Lock()
        self._feeders = ThreadPoolExecutor(self.workers, "feeder")
        self._kernels: TemporaryDirectory[str] | None = None
        """where workers on a GPU share out what is to be compiled"""

    def about(self) -> dict[str, JSON]:
        return {"name": "processes", "workers": self.workers, "threads": self.threads}

    def start(self) -> None:
        """Start all workers now, and not when there is work for them: loading torch takes seconds."""
        for _ in range(self.workers):
            self._idle.put(self._started())

    def ready(self, task: Task) -> None:
        """Let each worker do what comes before its first score of a task, while this process does something else.

        What goes wrong there goes wrong again, and is told, when scores are asked for.
        """
        key = self._key(task)
        for _ in range(self.workers):
            self._feeders.submit(self._scored, key, [])

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        return self.score_chunks(task, chunks(archs, self.workers, task.device, ROUNDS))

    def score_chunks(self, task: Task, cut: Sequence[Sequence[Any]]) -> ScoredBatch:
        """The scores of architectures that were cut already: each chunk goes to one worker in one go."""
        key, text = self._key(task), task.space.text
        waiting = [self._feeders.submit(self._scored, key, [text(arch) for arch in chunk]) for chunk in cut]
        try:
            return [one for chunk in waiting for one in chunk.result()]
        except BaseException:
            for chunk in waiting:
                chunk.cancel()
            raise

    def _key(self, task: Task) -> Key:
        """Of a task whose recipe is at hand from now on."""
        key = key_of(task)
        with self._lock:  # several threads may ask at once, and all are to share one folder
            if key not in self._recipes:
                self._recipes[key] = pickle.dumps(self.recipe(task))
        return key

    def recipe(self, task: Task) -> Recipe:
        """With the share that each worker has of a GPU."""
        if torch.device(task.device).type != "cuda":
            return Recipe.of(task, self.threads, self.prepare)
        if self._kernels is None:
            self._kernels = TemporaryDirectory()
        share = Share(WORKERS_ROOM / self.workers, self._kernels.name)
        return Recipe.of(task, self.threads, self.prepare, share)

    def _scored(self, key: Key, texts: Sequence[str]) -> ScoredBatch:
        """The scores of one chunk, by a worker that is idle or by a new one."""
        how = ""
        for _ in range(TRIES):
            worker = self._worker()
            try:
                answered = worker.ask(key, self._recipes[key], texts)
            except _DiedError as error:
                how = str(error)
                with self._lock:
                    self._all.discard(worker)
                continue
            self._idle.put(worker)
            if isinstance(answered, Failure):
                raise answered.error()
            return answered
        raise lost(texts, TRIES, how)

    def _worker(self) -> _Worker:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._started()

    def _started(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("This executor is closed.")
            worker = _Worker(self.threads)
            self._all.add(worker)
            return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            for worker in self._all:
                worker.kill()
        self._feeders.shutdown(cancel_futures=True)
        for worker in self._all:
            worker.forget()
        if self._kernels is not None:
            self._kernels.cleanup()


class _DiedError(Exception):
    """A worker is gone; the message says how."""


class _Worker:
    """A process that scores one chunk at a time. It has a session of its own: Ctrl-C is for this process alone."""

    def __init__(self, threads: int) -> None:
        self._knows: set[Key] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(THREADS, str(threads)),
            start_new_session=True,
        )

    def ask(self, key: Key, recipe: bytes, texts: Sequence[str]) -> Answer:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump((key, b"" if key in self._knows else recipe, list(texts)), self._process.stdin)
            self._process.stdin.flush()
            answered: Answer = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.kill()
            raise _DiedError(self.forget()) from None
        if not isinstance(answered, Failure):
            self._knows.add(key)
        return answered

    def kill(self) -> None:
        self._process.kill()

    def forget(self) -> str:
        """Wait for the process, which was killed or has ended by itself; how it ended."""
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except OSError:  # something was still to be written
                continue
        return f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
