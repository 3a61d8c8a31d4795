"""Latency in a search: a limit that always holds, or one objective of several.

task, limit = timed(task, "torch", limit=20.0)                                   # measured here
task, limit = timed(task, "table:hwnasbench.csv.gz:cifar10_raspi4_latency", limit=20.0)
run_search(task, ..., latency=limit)

A limit is compared with the upper end of the 95 % interval of the median, so that noise counts against a network and
never for it. A network over the limit, or one that cannot be timed, is neither scored nor chosen. Measurements are kept
in the store under machine, threads and batch, also for networks over the limit, and are not repeated: a resumed search
sees the same latencies.

Latency is measured in this process while workers wait. The search's clock counts that time separately.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from epochzero.errors import UserError
from epochzero.hardware.timing import RUNTIMES, Meter, TableMeter, Timing, UnmeasurableError
from epochzero.objectives.goals import LATENCY
from epochzero.registry import near_miss
from epochzero.store import Evaluated, Store
from epochzero.study.clock import Clock
from epochzero.study.methods.base import whole_of
from epochzero.study.sources import TableSource
from epochzero.study.task import Task
from epochzero.types import Score, Setting

if TYPE_CHECKING:
    from epochzero.engine import Proxy
    from epochzero.executors.base import ScoredBatch
    from epochzero.spaces.base import AnySpace

TABLE, COMMAND = "table:", "command:"
KEYS = (LATENCY.name, "latency_low", "latency_high")
"""names of the median and its interval in the store"""
TRIES = 200
"""samples that are tried before a walk begins"""
PATIENCE = 8
"""samples without a latency, where none has one, after which latencies of the space are given up"""
STEPS = 50
MUTATIONS = 50


class Latency:
    """The source of the score `latency`, in milliseconds."""

    candidates: Sequence[Any] | None = None

    def __init__(self, meter: Meter, space: AnySpace) -> None:
        self.meter, self.space = meter, space
        self.name = meter.name
        self.timings: dict[Any, Timing | str] = {}
        """by architecture, or why it cannot be timed"""
        self.clock = Clock()
        self.store: Store | None = None

    def keep(self, store: Store, clock: Clock) -> None:
        """From now on measurements are looked up and kept there, and their time is counted there."""
        self.store, self.clock = store, clock
        identity = {"space": self.space.name, "meter": self.name}
        self.run = None if self.meter.instant else store.begin_run("latency", identity, {})
        if self.run is not None:
            self.run.finish({})  # it collects what any search measures, and never waits for more

    def of(self, arch: Any) -> Timing | str:
        """The latency of a network, or the reason why there is none."""
        if arch not in self.timings:
            start = time.perf_counter()
            self.timings[arch] = self._stored(arch) or self._measured(arch)
            self.clock.spent["latency"] += time.perf_counter() - start
        return self.timings[arch]

    @property
    def _setting(self) -> Setting:
        return Setting(self.space.name, self.name, "measured")

    def _stored(self, arch: Any) -> Timing | str | None:
        if self.store is None or self.meter.instant:
            return None
        text = self.space.text(arch)
        scores = [self.store.scores(self._setting, key, [text]).get(text) for key in KEYS]
        known = [score for score in scores if score is not None]
        if len(known) < len(KEYS):
            return None
        return Timing(*(score.value for score in known)) if known[0].ok else known[0].why

    def _measured(self, arch: Any) -> Timing | str:
        start = time.perf_counter()
        timing: Timing | str
        try:
            timing = self.meter(arch)
            scores = [Score(value) for value in timing]
        except UnmeasurableError as reason:
            timing = str(reason)
            scores = [Score.failed(timing)] * len(KEYS)
        if self.store is not None and self.run is not None:
            text, seconds = self.space.text(arch), time.perf_counter() - start
            kept = {key: (score, seconds / len(KEYS)) for key, score in zip(KEYS, scores, strict=True)}
            self.run.record(self._setting, [Evaluated(_place(text), text, kept)])
        return timing

    @property
    def facts(self) -> dict[str, Any]:
        """The latency source and its settings, as JSON fields."""
        return {"told_by": self.name, **self.meter.facts}

    def covers(self, proxy: Proxy) -> bool:
        return proxy.name == LATENCY.name

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        """The medians."""
        return [({LATENCY.name: self._score(arch)}, 0.0) for arch in archs]

    def _score(self, arch: Any) -> Score:
        timing = self.of(arch)
        return Score(timing.median) if isinstance(timing, Timing) else Score.failed(timing)


def _place(text: str) -> int:
    """A step for a measurement: they come in no order, and every search that measures the same network shares one."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


class LatencyLimit(NamedTuple):
    """The most milliseconds that a network may take, and the source of its latency; or the most energy of a table."""

    latency: Latency
    milliseconds: float
    energy: LatencyLimit | None = None
    """a second limit"""
    unit: str = "ms"
    """empty for energy, whose unit is that of the table"""

    @property
    def most(self) -> str:
        """The limit in words."""
        return f"{self.milliseconds:g} ms" if self.unit else f"{self.milliseconds:g} of {self.latency.name}"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that tell runs apart."""
        if not self.unit:
            return {"max_energy": self.milliseconds, "energy": self.latency.name}
        own = {"max_latency_ms": self.milliseconds, "latency": self.latency.name}
        return own | ({} if self.energy is None else self.energy.settings)

    def within(self, space: Any) -> SwiftSpace:
        """The part of a space within the limit."""
        return SwiftSpace(space if self.energy is None else self.energy.within(space), self)

    def report(self, arch: Any) -> dict[str, Any]:
        """Latency and energy of a network with their limits, as JSON fields."""
        found = {"latency": self.about(arch)} if self.unit else {}
        limit = self.energy if self.unit else self
        if limit is not None:
            timing = limit.latency.of(arch)
            value = timing.median if isinstance(timing, Timing) else None
            found["energy"] = {"value": value, "limit": limit.milliseconds, **limit.latency.facts}
        return found

    def about(self, arch: Any = None) -> dict[str, Any]:
        """The limit, how many networks were over it, and the latency of one network, as JSON fields."""
        timings = self.latency.timings.values()
        facts = {
            "limit_ms": self.milliseconds,
            **self.latency.facts,
            "asked": len(timings),
            "over": sum(isinstance(one, Timing) and one.high > self.milliseconds for one in timings),
            "without": sum(isinstance(one, str) for one in timings),
        }
        timing = None if arch is None else self.latency.of(arch)
        if isinstance(timing, Timing):
            facts["best"] = timing.facts
        return facts


class SwiftSpace:
    """The part of a space whose networks are within a latency limit; UserError at once where none can be."""

    def __init__(self, space: Any, limit: LatencyLimit) -> None:
        self.space, self.limit = space, limit
        self.start = self._fastest() if limit.latency.meter.instant else self._smallest()

    def fits(self, arch: Any) -> bool:
        timing = self.limit.latency.of(arch) if self.space.fits(arch) else None
        return isinstance(timing, Timing) and timing.high <= self.limit.milliseconds

    def __iter__(self) -> Iterator[Any]:
        """Of a table all that fit; where latencies are measured, those alone that were measured so far."""
        latency = self.limit.latency
        return filter(self.fits, self.space if latency.meter.instant else list(latency.timings))

    def sample(self, rng: Random) -> Any:
        """As the space samples, given that it fits; where hardly any does, the end of a walk that stays within."""
        for _ in range(TRIES):
            arch = self.space.sample(rng)
            if self.fits(arch):
                return arch
        arch = self.start
        for _ in range(STEPS):
            child = self.space.mutate(arch, rng)
            arch = child if self.fits(child) else arch
        return arch

    def mutate(self, arch: Any, rng: Random) -> Any:
        """As the space mutates, given that it fits; where it seems that none does, a new sample."""
        children = (self.space.mutate(arch, rng) for _ in range(MUTATIONS))
        child = next(filter(self.fits, children), None)
        return self.sample(rng) if child is None else child

    def neighbours(self, arch: Any) -> list[Any]:
        return [other for other in self.space.neighbours(arch) if self.fits(other)]

    def _fastest(self) -> Any:
        """The fastest network of the table."""
        latency = self.limit.latency
        assert isinstance(latency.meter, TableMeter)
        timings = {arch: latency.of(arch) for arch in latency.meter.table.archs}
        known = {arch: timing.high for arch, timing in timings.items() if isinstance(timing, Timing)}
        arch = next(filter(self.space.fits, sorted(known, key=known.__getitem__)), None)
        if arch is None:
            raise UserError(f"{latency.name} knows the latency of no network that is within the other limits.")
        if not self.fits(arch):
            fastest = f"the fastest takes {latency.of(arch)}" if self.limit.unit else f"the least is {known[arch]:g}"
            raise UserError(f"No {latency.space.name} network takes at most {self.limit.most}: {fastest}.")
        return arch

    def _smallest(self) -> Any:
        """The smallest network, where it has a latency and is one of those to search among; else a sample that fits."""
        (latency, limit, *_), whole = self.limit, whole_of(self.space)
        smallest = whole.smallest()
        timing = latency.of(smallest)
        if isinstance(timing, Timing) and timing.high > limit:
            raise UserError(
                f"The smallest {whole.name} network takes {timing} here, and the upper end has to be at most "
                f"{limit:g} ms: raise --max-latency-ms."
            )
        return smallest if self.fits(smallest) else self._first()

    def _first(self) -> Any:
        """The first sample that fits."""
        latency, limit, *_ = self.limit
        rng = Random(0)
        for tried in range(1, TRIES + 1):
            arch = self.space.sample(rng)
            if self.fits(arch):
                return arch
            if tried == PATIENCE and all(isinstance(timing, str) for timing in latency.timings.values()):
                raise UserError(f"The latency of {latency.space.name} networks cannot be measured: {latency.of(arch)}.")
        raise UserError(f"None of {TRIES} networks takes at most {limit:g} ms: raise --max-latency-ms.")


def timed(
    task: Task, source: str = "torch", size: int = 1, threads: int | None = None, limit: float | None = None
) -> tuple[Task, LatencyLimit | None]:
    """A task that can say latencies, where one of its proxies is one; and the limit, where there is one."""
    if limit is not None and not 0 < limit < math.inf:
        raise UserError(f"--max-latency-ms takes more than 0 milliseconds, not {limit:g}.")
    wanted = LATENCY in task.proxies
    if limit is None and not wanted:
        return task, None
    latency = Latency(meter_of(source, task, size, threads), task.space)
    if wanted:
        task = replace(task, sources=(latency, *task.sources))
    return task, None if limit is None else LatencyLimit(latency, limit)


def with_energy(task: Task, limit: LatencyLimit | None, energy: str | None, most: float | None) -> LatencyLimit | None:
    """The limit with one of energy, from a table's column."""
    if most is None:
        return limit
    if energy is None or not energy.startswith(TABLE):
        raise UserError("--max-energy needs the column of a table: give --energy table:FILE:COLUMN.")
    if not 0 < most < math.inf:
        raise UserError(f"--max-energy takes more than 0, not {most:g}.")
    own = LatencyLimit(Latency(meter_of(energy, task), task.space), most, unit="")
    return own if limit is None else limit._replace(energy=own)


def slowest(milliseconds: float | None, throughput: float | None, size: int) -> float | None:
    """The most milliseconds of a batch of that size, for a limit of latency and one of samples a second."""
    if throughput is None:
        return milliseconds
    if not 0 < throughput < math.inf:
        raise UserError(f"--min-throughput takes more than 0 samples a second, not {throughput:g}.")
    return min(1e3 * size / throughput, math.inf if milliseconds is None else milliseconds)


def latency_source(task: Task, limit: LatencyLimit | None) -> Latency | None:
    """The latency source of a search, if it has one."""
    if limit is not None and limit.unit:
        return limit.latency
    return next((source for source in task.sources if isinstance(source, Latency)), None)


def meter_of(text: str, task: Task, size: int = 1, threads: int | None = None) -> Meter:
    """`torch`, `onnxruntime`, `table:FILE:COLUMN` or `command:PROGRAM {onnx}`."""
    if not isinstance(text, str):
        raise UserError(f"A latency source is named by a text such as 'torch', not {text!r}.")
    if text.startswith(TABLE):
        file, _, column = text.removeprefix(TABLE).rpartition(":")
        if not file or not column:
            raise UserError(f"{text!r} names no file and column: write table:FILE:COLUMN.")
        return TableMeter(TableSource.read(file, task.space), column)
    from epochzero.hardware.meters import CommandMeter, OnnxMeter, TorchMeter

    if text.startswith(COMMAND):
        return CommandMeter(task, size, threads, text.removeprefix(COMMAND))
    if text not in RUNTIMES:
        known = [*RUNTIMES, "table:FILE:COLUMN", "command:PROGRAM {onnx}"]
        raise UserError(
            f"There is no latency source '{text}'.{near_miss(text, list(RUNTIMES))} Known: {', '.join(known)}."
        )
    return (OnnxMeter if text == "onnxruntime" else TorchMeter)(task, size, threads)
