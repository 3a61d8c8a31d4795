"""The default executor: this process for a few networks, and all cores, by worker processes, for many.

Networks that are asked for together are scored on one thread each, here or in a worker, so that neither their number
nor the load of the machine changes a digit. Workers are started when the networks so far, and those still to come of
the same request, take longer than a start.

On a GPU this process scores populations. Networks that run one by one there (`epochzero.engine.population.cost`) keep
one core busy more than the device; so worker processes share the device, when they pay: by the time that the networks
so far took, and what of it is the device's own. If its memory runs out there, half as many processes go on.
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
    from epochzero.engine.population.grouping import Estimate
    from epochzero.executors.processes import Processes
    from epochzero.study.task import Task

START = 4.0
"""seconds of scoring in this process from which workers are worth their start, about 2 seconds of each"""
GPU_START = 15.0
"""seconds in which workers on a GPU start, load its libraries and see their first networks"""
GPU_WORKERS = 8
"""the most processes that share a GPU"""
FEW = 8
"""networks that are scored one by one before workers are considered again, and the most in a chunk of a worker"""
LEAST_GAIN = 1.5
"""times as fast as this process, from which workers are considered"""


class Auto(Local):
    """Scores here, or in worker processes if that is faster."""

    def __init__(self, threads: int | None = None, *, device: str = "cpu", prepare: Prepare | None = None) -> None:
        super().__init__(threads)
        self.prepare = prepare
        self._on_cpu = device.startswith("cpu")
        self._on_gpu = device.startswith("cuda")
        self._estimates: dict[Any, Estimate] = {}
        self._crew: Processes | None = None
        self._spent = 0.0
        """seconds of networks that workers could have shared"""
        self._singles = 0
        """requests for one network since there was one for several"""

    @cached_property
    def workers(self) -> int:  # type: ignore[override]
        """1 from when workers failed."""
        from epochzero.engine.resources import cores
        from epochzero.engine.threads import AT_FIRST

        if self._on_gpu:
            return min(cores(), GPU_WORKERS)
        return max(1, AT_FIRST // (self.threads or 1)) if self._on_cpu else 1

    def about(self) -> dict[str, JSON]:
        return super().about() | {"name": "auto", "workers": self.workers}

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        self._singles = self._singles + 1 if len(archs) == 1 else 0
        if self.workers < 2 or self._singles > 1:
            return super().score(task, archs)
        if self._on_gpu:
            return self._on_a_gpu(task, archs)
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

    def _on_a_gpu(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        if len(archs) < 2 or not (estimate := self._estimate(task, archs)).alone:
            return super().score(task, archs)
        scored: ScoredBatch = []
        while rest := archs[len(scored) :]:
            if self._crew is None and not self._pays(scored, len(rest), estimate.device):
                start = time.perf_counter()
                scored += super().score(task, rest[:FEW])
                self._spent += time.perf_counter() - start
            elif (more := self._by_workers(task, rest)) is not None:
                return scored + more
        return scored

    def _estimate(self, task: Task, archs: Sequence[Any]) -> Estimate:
        from epochzero.engine.population.grouping import estimate
        from epochzero.engine.space_networks import network_of
        from epochzero.executors.worker import key_of

        key = key_of(task)
        if key not in self._estimates:
            networks = [network_of(task.space, arch, task.batch, task.origin, task.device) for arch in archs[:2]]
            needs = [need for proxy in task.proxies for need in proxy.needs]
            self._estimates[key] = estimate(networks, needs, task.batch)
        return self._estimates[key]

    def _pays(self, scored: ScoredBatch, left: int, device: float | None) -> bool:
        """Returns True if workers save more than their start; the first network of a slice may compile kernels."""
        if self.workers < 2 or not scored:
            return False
        each = sorted(seconds for _, seconds in scored[-FEW:])[min(FEW, len(scored)) // 2]
        gain = min(self.workers, each / device if device else self.workers / 2)
        return gain >= LEAST_GAIN and (self._spent + left * each) * (1 - 1 / gain) > GPU_START

    def _by_workers(self, task: Task, archs: Sequence[Any]) -> ScoredBatch | None:
        """The scores by workers that share a GPU; None if they failed, after which there are fewer, or none."""
        from epochzero.executors.processes import Processes

        try:
            if self._crew is None:
                _empty_cache()
                self._crew = Processes(self.workers, threads=self.threads or 1, prepare=self.prepare)
            size = max(1, min(FEW, -(-len(archs) // (4 * self.workers))))
            cut = [archs[first : first + size] for first in range(0, len(archs), size)]
            return self._crew.score_chunks(task, cut)
        except (UserError, MachineError) as error:
            self._stop()
            self.workers = self.workers // 2 if "emory" in str(error) else 1
            return None

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


def _empty_cache() -> None:
    """Gives memory of a GPU back that torch keeps for later."""
    import torch

    torch.cuda.empty_cache()
