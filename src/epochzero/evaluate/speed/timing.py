"""One measurement of speed: the time and memory of a job, run here or in a separate process."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from epochzero.data import Batch
from epochzero.engine import Proxy, parse_list, score_population
from epochzero.engine import network as network_
from epochzero.engine.population.population import Population
from epochzero.engine.precision import set_precision
from epochzero.engine.score import score_together
from epochzero.engine.space_networks import network_of
from epochzero.engine.threads import give_threads, given_threads
from epochzero.errors import MachineError
from epochzero.evaluate.speed import mbconv
from epochzero.executors.auto import START, Auto
from epochzero.executors.processes import Processes
from epochzero.registry import spaces
from epochzero.study.task import Task
from epochzero.types import Origin, Score

Scores = list[dict[str, Score]]
"""of each network, by proxy"""
Way = Literal["auto", "lockstep", "alone", "tape", "processes", "tf32", "channels_last", "tuned"]

SETTLED = 1.2 * START
"""seconds after which the default executor has started workers, if they pay"""


@dataclass(frozen=True)
class Job:
    """One row of a report, with everything that a separate process needs."""

    way: Way
    space: str
    archs: tuple[str, ...]
    warm: tuple[str, ...]
    proxies: str
    batch: Batch
    seed: int
    device: str
    step: int
    """networks that are scored in one call"""
    chunk: int
    """networks in one task of a worker process"""
    workers: int
    tf32: bool
    seconds: float


@dataclass(frozen=True)
class Timed:
    """The result of a job."""

    seconds: float
    peak: float
    """bytes"""
    scores: Scores
    """of the networks that were scored in time"""


def measure(job: Job) -> Timed:
    """Scores the networks of a job in the current process."""
    space = spaces[job.space]
    _forget_plans(space)
    if job.device != "cpu":
        torch.cuda.empty_cache()  # frees an earlier row's memory for worker processes
    with scorer(job) as score:
        before = _memory(job) if job.device == "cpu" else 0
        warm, begun = [space.parse(text) for text in job.warm], time.perf_counter()
        score(warm)
        while job.way == "auto" and job.device == "cpu" and time.perf_counter() - begun < SETTLED:
            score(warm)
        settle(job.device)
        if job.device != "cpu":
            torch.cuda.reset_peak_memory_stats(job.device)
        archs = [space.parse(text) for text in job.archs]
        scores: Scores = []
        start = time.perf_counter()
        while not scores or (len(scores) < len(archs) and time.perf_counter() - start < job.seconds):
            scores += score(archs[len(scores) : len(scores) + job.step])
        settle(job.device)
        seconds = time.perf_counter() - start
    return Timed(seconds, _memory(job) - before, scores)


@contextmanager
def scorer(job: Job) -> Iterator[Callable[[Sequence[Any]], Scores]]:
    """A function from architectures to scores."""
    set_precision(job.tf32 or job.way == "tf32")
    space, named, origin = spaces[job.space], parse_list(job.proxies), Origin(seed=job.seed)
    task = Task(space, named, job.batch, origin, job.device)
    if job.way == "auto":
        with Auto(device=job.device) as executor:
            yield lambda archs: [scores for scores, _ in executor.score(task, archs)]
        return
    if job.way == "processes":
        crew = Processes(job.workers, prepare=mbconv.register) if job.device == "cpu" else _crew(job.workers)

        def spread(archs: Sequence[Any]) -> Scores:
            size = min(job.chunk, -(-len(archs) // job.workers))
            chunks = [archs[first : first + size] for first in range(0, len(archs), size)]
            return [scores for scores, _ in crew.score_chunks(task, chunks)]

        try:
            crew.ready(task)
            yield spread
        finally:
            if job.device == "cpu":
                crew.__exit__(None, None, None)
        return

    def score(archs: Sequence[Any]) -> Scores:
        networks = [network_of(space, arch, job.batch, origin, job.device) for arch in archs]
        if job.way == "tape":
            return [own for network in networks for own in _recorded(network, named, job)]
        scored = score_population(networks, named, job.batch, job.seed, "always" if job.way == "lockstep" else "never")
        return [one.scores for one in scored]

    with _variant(job.way):
        yield score


@cache
def _crew(workers: int) -> Processes:
    """Processes that share a GPU, for all measurements of this process, whose end is theirs."""
    return Processes(workers, prepare=mbconv.register)


def _recorded(network: Any, named: Sequence[Proxy], job: Job) -> Scores:
    """The scores of one network as a population of one, which runs by tapes and routines."""
    if not Population.fits([network]):
        raise MachineError("Only plans run by tapes.")
    return score_together([network], named, job.batch, job.seed)


@contextmanager
def _variant(way: Way) -> Iterator[None]:
    """Torch runs convolutions in another way inside the block."""
    tuned, kinds = torch.backends.cudnn.benchmark, set(network_.CHANNELS_LAST_ON)
    torch.backends.cudnn.benchmark = tuned or way == "tuned"
    network_.CHANNELS_LAST_ON |= {"cuda"} if way == "channels_last" else set()
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, network_.CHANNELS_LAST_ON = tuned, kinds


def _forget_plans(space: object) -> None:
    """Clears the caches of plans that an earlier row filled."""
    for member in vars(sys.modules[type(space).__module__]).values():
        if hasattr(member, "cache_clear"):
            member.cache_clear()


def settle(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _memory(job: Job) -> int:
    """The peak in bytes so far; for worker processes on a GPU, their current memory."""
    if job.device != "cpu" and job.way == "processes":
        free, total = torch.cuda.mem_get_info(job.device)
        return total - free
    if job.device != "cpu":
        return torch.cuda.max_memory_allocated(job.device)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    of_workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 2**10
    return max(own, of_workers) * unit


def measured(job: Job) -> Timed:
    """Measures in a fresh process on a CPU, so that memory starts from the same base."""
    if job.device != "cpu":
        return measure(job)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["epochzero.evaluate.speed.timing"])
    with context.Pool(1, _set_threads, (given_threads(),)) as pool:
        return pool.apply(measure, (job,))


def _set_threads(number: int | None) -> None:
    if number is not None:
        give_threads(number)
