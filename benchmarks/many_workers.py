"""A search with up to thousands of workers, simulated: where the process that asks and stores becomes the limit.

    python benchmarks/many_workers.py                                  # 1 to 4,000 workers, two minutes of one core
    python benchmarks/many_workers.py --workers 1000 --profile         # and where the process spends its time

Networks are scored once, on one thread, to measure how long each takes (processor seconds, so that other programs do
not matter). Then real searches run with a real store on disk, while the workers are a list of times at which each is
free again: a chunk takes what its networks took, and `--each` milliseconds of this process for the way to a worker and
back (Ray .75, worker processes .05). The time of the run is that of the workers, and the processor seconds that this
process really used.

efficiency   seconds of scoring over seconds of all workers
parent       milliseconds of this process for each network, without the way to workers
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self
from zlib import crc32

import torch

from epochzero import data
from epochzero.engine import parse
from epochzero.executors.base import ScoredBatch, chunks, rounds_of
from epochzero.registry import spaces
from epochzero.store import JSON, Store
from epochzero.study.loop import run_search
from epochzero.study.task import Task
from epochzero.types import Score

PROXY, SPACE = "naswot", "nats_sss"


def measured(networks: int) -> list[float]:
    """Processor seconds of scoring random networks, without the first, which warms up."""
    torch.set_num_threads(1)
    space, rng = spaces[SPACE], Random(0)
    task = Task(space, [parse(PROXY)], data.load("pink"))
    found = []
    for _ in range(networks + 1):
        start = time.process_time()
        task.score([space.sample(rng)])
        found.append(time.process_time() - start)
    return found[1:]


def _number(arch: object) -> int:
    return crc32(repr(arch).encode())


class Simulated:
    """Workers that take the seconds that were measured; `now` is the time of the simulated run."""

    elsewhere = False

    def __init__(self, workers: int, latencies: Sequence[float], each: float, slow: int = 0) -> None:
        self.workers, self.latencies, self.each, self.slow = workers, latencies, each, slow
        self.middle = sorted(latencies)[len(latencies) // 2]
        self.free = [(0.0, number) for number in range(workers)]
        self.now = self.scoring = self.parent = 0.0
        self._mark = time.process_time()
        self._finished: dict[tuple[Any, ...], float] = {}

    def about(self) -> dict[str, JSON]:
        return {"name": "simulated", "workers": self.workers}

    def _tick(self) -> None:
        """Adds what this process has used since the last call."""
        used = time.process_time() - self._mark
        self.now, self.parent = self.now + used, self.parent + used

    def begin(self, task: Task, archs: Sequence[Any]) -> None:
        self._tick()
        last = 0.0
        rounds = rounds_of(len(archs), self.workers, self.middle, self.each)
        for chunk in chunks(archs, self.workers, task.device, rounds):
            self.now += self.each
            free, worker = heapq.heappop(self.free)
            took = sum(self.latencies[_number(arch) % len(self.latencies)] for arch in chunk)
            self.scoring += took
            ends = max(free, self.now) + took * (10 if worker < self.slow else 1)
            heapq.heappush(self.free, (ends, worker))
            last = max(last, ends)
        self._finished[tuple(archs)] = last
        self._mark = time.process_time()

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        if tuple(archs) not in self._finished:
            self.begin(task, archs)
        self._tick()
        self.now = max(self.now, self._finished.pop(tuple(archs)))
        scored: ScoredBatch = [
            (
                {PROXY: Score(float(_number(arch) % 10**6), "ok", "")},
                self.latencies[_number(arch) % len(self.latencies)],
            )
            for arch in archs
        ]
        self._mark = time.process_time()
        return scored

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def simulated(
    workers: int, batch: int, ahead: int, latencies: Sequence[float], each: float, slow: int = 0, rounds: int = 12
) -> tuple[float, float, float]:
    """Efficiency, milliseconds of this process for a network, and networks a second."""
    evaluations = min(max(rounds * batch, 512), 30_000)  # the space has 32,768 networks
    executor = Simulated(workers, latencies, each, slow)
    task = Task(spaces[SPACE], [parse(PROXY)], data.load("pink"), executor=executor, ahead=ahead)
    options = {"batch": batch, "population": max(50, batch)}
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        run_search(task, "evolution", evaluations, seed=1, options=options, store=store)
        executor._tick()
    efficiency = executor.scoring / (workers * executor.now)
    return efficiency, 1e3 * executor.parent / evaluations, evaluations / executor.now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8,64,256,1000,4000", help="separated by commas")
    parser.add_argument("--each", type=float, default=0.75, help="milliseconds of this process for a chunk")
    parser.add_argument("--scale", type=float, default=1.0, help="networks that take this many times as long")
    parser.add_argument("--slow", type=float, default=0.0, help="share of workers that are ten times as slow")
    parser.add_argument("--networks", type=int, default=200, help="to measure")
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    latencies = [asked.scale * took for took in sorted(measured(asked.networks))]
    middle = latencies[len(latencies) // 2]
    print(f"{PROXY} of {len(latencies)} networks: median {1e3 * middle:.0f} ms, ", end="")
    print(f"from {1e3 * latencies[0]:.0f} to {1e3 * latencies[-1]:.0f}")
    Random(0).shuffle(latencies)
    print(
        "| workers | batch | ahead | efficiency | parent, ms a network | networks a second |\n|---|---|---|---|---|---|"
    )
    profile = cProfile.Profile()
    for workers in map(int, asked.workers.split(",")):
        for batch, ahead in dict.fromkeys(
            [(8, 0), (8, 2), *((max(8, each * workers), ahead) for each in (1, 4) for ahead in (0, 2))]
        ):
            if batch > 7_500 or (batch == 8 and workers > 8):
                continue
            if asked.profile:
                profile.enable()
            found = simulated(workers, batch, ahead, latencies, asked.each / 1e3, round(asked.slow * workers))
            profile.disable()
            print(
                f"| {workers:,} | {batch:,} | {ahead} | {found[0]:.3f} | {found[1]:.3f} | {found[2]:,.0f} |", flush=True
            )
    if asked.profile:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
