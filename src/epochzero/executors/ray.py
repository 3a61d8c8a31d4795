"""A Ray cluster: the machines of an address, or one that is started here for the time of a run.

Chunks of architectures are Ray tasks. Ray runs a task again when its worker or node is lost, so that a loss costs the
unfinished chunks alone; results come back to this process, which owns the store. A chunk that takes much longer than
most is given to a second worker too. The recipe is put into Ray's object store once, and each worker unpacks it once.

Moritz and others. Ray: a distributed framework for emerging AI applications. OSDI 2018. arXiv:1712.05889
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from epochzero.errors import MachineError, UserError
from epochzero.executors.base import Prepare, ScoredBatch, chunks, rounds_of
from epochzero.executors.worker import WORKERS_ROOM, Answer, Failure, Key, Recipe, Share, answer, key_of, lost
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task

COST = 0.001
"""seconds of this process for one task"""
RETRIES = 3
"""times that a chunk is given to another worker after one was lost"""
QUEUED = 2
"""chunks under way for each worker: one that it works on and one that is on its way"""
PATIENCE = 5.0
"""seconds that the head of a cluster has for a sign of life"""
LOOK = 2.0
"""seconds of waiting between two checks of the cluster: is the head there, is a worker slow"""
SLOW_FACTOR, SLOW_SECONDS = 3.0, 10.0
"""a chunk that takes this many times as long as most, and this long, is also given to another worker"""
COPIES = 2
"""times that a slow chunk is given to another worker"""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "6",  # seconds, about, that a head has for its first answer
}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""on any system, what is started here listens on loopback alone; Ray reads it when it is imported"""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""the start of HTTP/2, which Ray's head speaks; it answers in kind"""
SETTINGS = b"\x04"
"""the type of the frame that it answers with"""


class Ray:
    """Scores as tasks of a Ray cluster, at most `workers` at a time; as many as it has room for by default."""

    elsewhere = True
    shared = True
    """may be asked by several threads at once"""

    def __init__(
        self,
        workers: int | None = None,
        *,
        address: str | None = None,
        gpus: float = 0.0,
        threads: int = 1,
        prepare: Prepare | None = None,
    ) -> None:
        self.address, self.gpus, self.threads, self.prepare = address, gpus, threads, prepare
        self._asked = workers
        self._started = self._open = False
        self._head: str | None = None
        """host:port of the head's server, which has to answer"""
        self._seconds = 0.0
        """of a network of the last batch"""
        self._lock = Lock()
        self._recipes: dict[Key, Any] = {}
        self._remote: Any = None

    @property
    def workers(self) -> int:
        return self._asked or self._room()

    def about(self) -> dict[str, JSON]:
        return {"name": "ray", "workers": self.workers, "threads": self.threads, "gpus": self.gpus}

    def __enter__(self) -> Self:
        """Join the cluster, unless this process has joined one already."""
        if self.address is not None:
            _check_reachable(self.address)
        for name, value in (QUIET if self.address else QUIET | LOOPBACK).items():
            os.environ.setdefault(name, value)
        ray = _ray()
        self._open = True
        if ray.is_initialized():
            self._head = ray.get_runtime_context().gcs_address
            return self
        start: dict[str, Any] = {"address": self.address}
        if self.address is None:
            room = None if self._asked is None else self._asked * self.threads
            start = {"address": "local", "num_cpus": room, "include_dashboard": False}
        try:
            ray.init(**start, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise _not_joined(self.address, error) from error
        self._started = True
        self._head = ray.get_runtime_context().gcs_address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._recipes.clear()
        self._remote = None
        if self._started:
            _ray().shutdown()
            self._started = False

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        room = self._room()
        workers = self._asked or room
        most = workers if workers < room else QUEUED * workers
        texts = [task.space.text(arch) for arch in archs]
        rounds = rounds_of(len(texts), workers, self._seconds, COST)
        batch = _Batch(self._send(task), chunks(texts, workers, task.device, rounds), most)
        try:
            while not batch.whole:
                batch.send()
                if not batch.receive():
                    self._check()
                    batch.send_again(workers)
        except BaseException:
            batch.cancel()
            raise
        scored = batch.in_order()
        self._seconds = sum(seconds for _, seconds in scored) / max(1, len(scored))
        return scored

    def _send(self, task: Task) -> Callable[[Sequence[str]], Any]:
        """The function that gives a chunk to a worker."""
        ray, key = _ray(), key_of(task)
        with self._lock:
            if key not in self._recipes:
                try:
                    self._recipes[key] = ray.put(self.recipe(task))
                except (ray.exceptions.RayError, OSError) as error:
                    raise _full(error) from error
            run = self._task()
        return lambda texts: run.remote(key, [self._recipes[key]], texts, versions())

    def _check(self) -> None:
        """MachineError if this executor was left, or if the head does not answer: Ray would end this process."""
        if not self._open:
            raise MachineError("The Ray cluster was left while networks were scored.")
        if self._head is not None and not _accepts(self._head):
            raise MachineError(
                f"The head of the Ray cluster, {self._head}, no longer answers: check that machine and the network. "
                "What was stored before is safe; the same command with the same store resumes there."
            )

    def recipe(self, task: Task) -> Recipe:
        """With the memory that goes with a part of a GPU."""
        part = 0 < self.gpus < 1 and torch.device(task.device).type == "cuda"
        share = Share(WORKERS_ROOM * self.gpus) if part else Share()
        return Recipe.of(task, self.threads, self.prepare, share)

    def _task(self) -> Any:
        """The function that Ray runs: made once, because each one travels to all machines."""
        if self._remote is None:
            needs = {"num_cpus": self.threads, "num_gpus": self.gpus}
            self._remote = _ray().remote(max_retries=RETRIES, **needs)(_score)
        return self._remote

    def _room(self) -> int:
        """The number of workers that the cluster has room for; UserError if it has none."""
        alive = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        needs = {name: number for name, number in {"CPU": self.threads, "GPU": self.gpus}.items() if number}
        for name, number in needs.items():
            most = max((has.get(name, 0.0) for has in alive), default=0.0)
            if most < number:
                raise UserError(
                    f"A worker needs {number:g} {name}, but no machine of the Ray cluster has more than {most:g}: "
                    f"{'try --device cpu' if name == 'GPU' else 'use fewer --threads'}, or add a machine that has it."
                )
        return sum(min(int(has.get(name, 0.0) / number) for name, number in needs.items()) for has in alive) or 1


class _Batch:
    """The chunks of one batch: those to send, those under way, and the scores that are here."""

    def __init__(self, give: Callable[[Sequence[str]], Any], cut: Sequence[Sequence[str]], most: int) -> None:
        self._give, self._chunks, self._most = give, cut, most
        self._todo = deque(range(len(cut)))
        self._under_way: dict[Any, int] = {}
        """number of the chunk by task"""
        self._since = [0.0] * len(cut)
        """when each chunk was last sent"""
        self._copies: Counter[int] = Counter()
        self._took: list[float] = []
        self._scored: dict[int, ScoredBatch] = {}

    @property
    def whole(self) -> bool:
        return len(self._scored) == len(self._chunks)

    def in_order(self) -> ScoredBatch:
        return [one for number in sorted(self._scored) for one in self._scored[number]]

    def send(self) -> None:
        """Gives workers what they have room for."""
        while self._todo and len(self._under_way) < self._most:
            self._send(self._todo.popleft())

    def _send(self, number: int) -> None:
        self._under_way[self._give(self._chunks[number])] = number
        self._since[number] = time.monotonic()

    def receive(self) -> bool:
        """Takes all answers that are there; False if none came for a while."""
        ray, waiting = _ray(), list(self._under_way)
        done, left = ray.wait(waiting, timeout=LOOK)
        if left and done:
            done += ray.wait(left, num_returns=len(left), timeout=0)[0]
        for one in done:
            number = self._under_way.pop(one, None)
            if number is None or number in self._scored:
                continue
            try:
                answered: Answer = ray.get(one)
            except ray.exceptions.RayError as error:
                if number in self._under_way.values():  # a copy of it may do better
                    continue
                raise _explained(error, self._chunks[number]) from error
            if isinstance(answered, Failure):
                raise answered.error()
            self._scored[number] = answered
            self._took.append(time.monotonic() - self._since[number])
            for other in [task for task, its in self._under_way.items() if self._copies[number] and its == number]:
                del self._under_way[other]
                ray.cancel(other)
        return bool(done)

    def send_again(self, workers: int) -> None:
        """Gives chunks that take much longer than most to another worker too; the first answer counts."""
        if self._todo or not self._took:
            return
        patience = max(SLOW_SECONDS, SLOW_FACTOR * median(self._took))
        for number in dict.fromkeys(self._under_way.values()):
            late = time.monotonic() - self._since[number] > patience
            if late and self._copies[number] < COPIES and len(self._under_way) < QUEUED * workers:
                self._copies[number] += 1
                self._send(number)

    def cancel(self) -> None:
        """Ends what is under way; a cluster that is gone has nothing to end."""
        for one in self._under_way:
            with suppress(Exception):
                _ray().cancel(one)


def _ray() -> Any:
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise UserError("The executor 'ray' needs Ray: pip install 'epochzero[ray]'.") from None


@cache
def versions() -> dict[str, str]:
    """The versions that scores depend on, which have to be the same on every machine."""
    versions_here = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("epochzero", "torch"):
        try:
            versions_here[package] = version(package).partition("+")[0]  # +cpu and +cu126 are the same release
        except PackageNotFoundError:
            versions_here[package] = "none"
    return versions_here


def _score(key: Key, recipe: Sequence[Any], texts: Sequence[str], expected: Mapping[str, str]) -> Answer:
    """On a worker: score a chunk, if the versions are those of the process that asks."""
    ray, here = _ray(), versions()
    differ = [f"{name} {here[name]} instead of {expected[name]}" for name in expected if here[name] != expected[name]]
    if differ:
        node = ray.util.get_node_ip_address()
        sentence = (
            f"The machine {node} of the Ray cluster has {' and '.join(differ)}: install the same on all machines."
        )
        return Failure(sentence, True, "")
    return answer(key, lambda: ray.get(recipe[0]), texts)


def _explained(error: Exception, texts: Sequence[str]) -> Exception:
    """The error for a chunk that Ray could not run."""
    known = _ray().exceptions
    if isinstance(error, (known.NodeDiedError, known.OutOfMemoryError, known.WorkerCrashedError)):
        return lost(texts, RETRIES + 1, type(error).__name__)
    said = str(error).strip()
    if "No module named 'epochzero" in said:
        return UserError("A machine of the Ray cluster lacks this EpochZero: install the same release on all machines.")
    return MachineError(f"Ray could not run a chunk of networks: {said.splitlines()[-1] if said else type(error)}")


def _full(error: Exception) -> MachineError:
    """The sentence for an object store without room for the data of a task."""
    said = " ".join(str(error).split()) or type(error).__name__
    return MachineError(
        f"Ray's object store has no room for the batch ({said[:200]}): use a smaller batch size, or start the cluster "
        "with a larger --object-store-memory."
    )


def _accepts(address: str) -> bool:
    """True if something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError:
        return False
    return True


def _check_reachable(address: str) -> None:
    """UserError for an address where nothing answers like Ray; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--address takes the head's host:port, such as 10.0.0.1:6379, or auto, not {address!r}.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as line:
            line.settimeout(PATIENCE)
            line.sendall(GREETING)
            frame = line.recv(4)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UserError(
            f"No Ray cluster answers at '{address}' ({reason}): start it with `ray start --head` there, or check the "
            "address and the network between."
        ) from None
    if "RAY_USE_TLS" not in os.environ and frame[3:] != SETTINGS:
        raise UserError(f"What answers at '{address}' is no Ray cluster: give the address that `ray start` printed.")


def _not_joined(address: str | None, error: Exception) -> UserError:
    said = " ".join(str(error).split())
    if address is None:
        return UserError(f"Ray cannot be started on this machine ({said}).")
    if "ersion mismatch" in said:
        return UserError(f"The Ray cluster at '{address}' runs other versions than this machine. {said}")
    return UserError(
        f"This machine cannot join the Ray cluster at '{address}' ({said}): run this on a machine of the cluster, or "
        f"`ray start --address {address}` here first."
    )
