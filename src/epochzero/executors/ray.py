"""A Ray cluster: the machines of an address, or one that is started here for the time of a run.

Chunks of architectures are Ray tasks. Ray runs a task again when its worker or node is lost, so that a loss costs the
unfinished chunks alone; results come back to this process, which owns the store. The recipe is put into Ray's object
store once, and each worker unpacks it once.

Moritz and others. Ray: a distributed framework for emerging AI applications. OSDI 2018. arXiv:1712.05889
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from epochzero.errors import MachineError, UserError
from epochzero.executors.base import Prepare, ScoredBatch, chunks
from epochzero.executors.worker import WORKERS_ROOM, Answer, Failure, Key, Recipe, Share, answer, key_of, lost
from epochzero.store import JSON

if TYPE_CHECKING:
    from epochzero.study.task import Task

ROUNDS = 1
"""chunks for each worker of a batch: a task costs a millisecond or two"""
RETRIES = 3
"""times that a chunk is given to another worker after one was lost"""
QUEUED = 2
"""chunks under way for each worker: one that it works on and one that is on its way"""
PATIENCE = 5.0
"""seconds that the head of a cluster has for a sign of life"""
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
        self._started = False
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
        if ray.is_initialized():
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recipes.clear()
        self._remote = None
        if self._started:
            _ray().shutdown()
            self._started = False

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        ray, key, room = _ray(), key_of(task), self._room()
        if key not in self._recipes:
            self._recipes[key] = ray.put(self.recipe(task))
        run = self._task()
        workers = self._asked or room
        most = workers if workers < room else QUEUED * workers
        texts = [task.space.text(arch) for arch in archs]
        todo = deque(enumerate(chunks(texts, workers, task.device, ROUNDS)))
        under_way: dict[Any, tuple[int, Sequence[str]]] = {}
        scored: dict[int, ScoredBatch] = {}
        while todo or under_way:
            while todo and len(under_way) < most:
                number, chunk = todo.popleft()
                under_way[run.remote(key, [self._recipes[key]], chunk, versions())] = number, chunk
            (done, *_), _ = ray.wait(list(under_way))
            number, chunk = under_way.pop(done)
            try:
                answered: Answer = ray.get(done)
            except ray.exceptions.RayError as error:
                raise _explained(error, chunk) from error
            if isinstance(answered, Failure):
                raise answered.error()
            scored[number] = answered
        return [one for number in sorted(scored) for one in scored[number]]

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
