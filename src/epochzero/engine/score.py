"""Scores networks: returns one `{proxy: Score}` for each."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine.failure import (
    REASONS,
    KernelError,
    LinAlgError,
    PassFailedError,
    blame,
    device_failed,
    not_of_the_network,
    out_of_memory,
)
from epochzero.engine.gpu.arena import failed, give_up
from epochzero.engine.gpu.side_stream import on_side_stream
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import Item, Need, Pass, merged
from epochzero.engine.population.columns import ResultColumns
from epochzero.engine.population.cost import suits_tape
from epochzero.engine.population.grouping import MemoryBudget, PopulationMode, in_groups
from epochzero.engine.population.joint_run import can_run, run_together
from epochzero.engine.population.population import Population, no_collection
from epochzero.engine.precision import asked_precision
from epochzero.engine.proxy import Proxy
from epochzero.engine.reads import FACTS, NEED_GRAPH
from epochzero.engine.single.run import run_pass
from epochzero.engine.threads import fastest_threads
from epochzero.engine.trace import PassResult, Trace, refusals, trace
from epochzero.errors import MachineError, UserError
from epochzero.strict import deterministic, is_strict
from epochzero.types import Score

MISFITS = (RuntimeError, ValueError, IndexError, ArithmeticError)
"""errors of proxies on shapes and values that they do not support; other errors are bugs"""
Scores = dict[str, Score]
"""by `Proxy.text`"""


@dataclass(frozen=True)
class Scored:
    """The scores of one network, and the time they took."""

    scores: Scores
    seconds: float


@deterministic()
@asked_precision()
def score_population(
    networks: Iterable[Network],
    proxies: Sequence[Proxy],
    batch: Batch,
    seed: int,
    lockstep: PopulationMode = "auto",
    memory: MemoryBudget | None = None,
) -> list[Scored]:
    """Scores each network, in populations where that is faster; a population changes a score by rounding only.

    The last computations of a population wait until the first pass of the next one is launched. `memory` carries from
    one call to the next how large populations may be. A strict
    run forms none (`epochzero.strict`).
    """
    scored: list[Scored] = []
    since = time.perf_counter()
    waiting = iter(networks)
    if (first := next(waiting, None)) is None:
        return scored
    networks = chain([first], waiting)
    if is_strict() or lockstep == "never" or (lockstep == "auto" and first.device.type != "cuda"):
        with _threads(first, proxies, batch, seed):
            for network in networks:
                (own,) = _score(Prepared([network], None), proxies, batch, seed, "never")
                before, since = since, time.perf_counter()
                scored.append(Scored(own, since - before))
        return scored
    needs = [need for proxy in proxies for need in proxy.needs]
    runs = any(need.reads.keys() - FACTS for need in needs)
    memory = MemoryBudget() if memory is None else memory
    queue = _PopulationQueue(in_groups(networks, needs, batch, lockstep, memory), lockstep if runs else "never")
    begin = partial(_Scoring, proxies=proxies, batch=batch, seed=seed)
    under_way: list[_Scoring] = []

    def take() -> None:
        nonlocal since
        scores, before = _scores(under_way.pop(0), lockstep, memory), since
        since = time.perf_counter()
        scored.extend(Scored(own, (since - before) / len(scores)) for own in scores)

    def while_busy(left: int) -> None:
        if not left:
            queue.prepare()
        for before in under_way:
            before.finish()

    with no_collection(when=queue.forms_population()), _threads(first, proxies, batch, seed):
        for prepared in queue:
            while under_way and prepared.population is None:  # its results would stay in memory
                take()
            now = begin(prepared)
            del prepared
            now.launch(while_busy)
            under_way.append(now)
            while len(under_way) > 1 or (under_way and not under_way[0].results):
                take()
        while under_way:
            take()
    return scored


class Prepared(NamedTuple):
    """Networks that are scored together, and their population if they form one."""

    networks: Sequence[Network]
    population: Population | None


def _prepared(networks: Sequence[Network], lockstep: PopulationMode) -> Prepared:
    if lockstep == "never" or (len(networks) < 2 and lockstep == "always") or not Population.fits(networks):
        return Prepared(networks, None)
    if len(networks) < 2 and not suits_tape(networks[0].plan):  # type: ignore[attr-defined]
        return Prepared(networks, None)
    population = Population(networks)  # type: ignore[arg-type]
    population.prepare()
    return Prepared(networks, population)


class _PopulationQueue:
    """A queue of populations, each planned and merged while a GPU is busy with the one before it.

    One thread both launches and plans: two would wait for each other at every launch.
    """

    def __init__(self, groups: Iterator[list[Network]], lockstep: PopulationMode) -> None:
        self._groups, self._lockstep = groups, lockstep
        self._next: Prepared | None = None

    @no_collection()
    def prepare(self) -> None:
        """Prepares the next population unless it is ready."""
        if self._next is None and (group := next(self._groups, None)) is not None:
            self._next = _prepared(group, self._lockstep)

    def forms_population(self) -> bool:
        """Returns True if the next networks form a population."""
        self.prepare()
        return self._next is not None and self._next.population is not None

    def __iter__(self) -> _PopulationQueue:
        return self

    def __next__(self) -> Prepared:
        self.prepare()
        if (now := self._next) is None:
            raise StopIteration
        self._next = None
        return now


def score_network(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scored:
    """Scores one network: runs every pass that the proxies need once."""
    return score_population([network], proxies, batch, seed, "never")[0]


def _threads(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> AbstractContextManager[None]:
    """Torch's faster number of threads, on a CPU, for networks like this one."""
    if is_strict() or network.device.type != "cpu" or all(proxy.free for proxy in proxies):
        return nullcontext()
    return fastest_threads(batch, lambda few: _score(Prepared([network], None), proxies, few, seed, "never"))


@deterministic()
@asked_precision()
def score_together(networks: Sequence[PlanNetwork], proxies: Sequence[Proxy], batch: Batch, seed: int) -> list[Scores]:
    """Scores mergeable networks as one population on any device, even a single network.

    `score_population` chooses when to form populations; checks that compare them with single networks must force them.
    """
    return _score(Prepared(networks, Population(networks)), proxies, batch, seed, "always")


def _score(
    prepared: Prepared, proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: PopulationMode
) -> list[Scores]:
    """Returns the scores of each network."""
    scoring = _Scoring(prepared, proxies, batch, seed)
    del prepared
    scoring.launch()
    return _scores(scoring, lockstep, MemoryBudget())


def _scores(scoring: _Scoring, lockstep: PopulationMode, memory: MemoryBudget) -> list[Scores]:
    """Returns the scores of launched passes; if memory ran out, scores one half of the networks after the other.

    If a kernel could not be compiled, all are scored again without kernels.
    """
    if scoring.finish():
        return scoring.scores()
    networks, batch = scoring.networks, scoring.batch
    if failed() and not scoring.without_kernels:
        scoring.let_go()
        return _score(_prepared(networks, lockstep), scoring.proxies, batch, scoring.seed, lockstep)
    if len(networks) == 1 and scoring.by_tape:
        scoring.let_go()
        return _score(Prepared(networks, None), scoring.proxies, batch, scoring.seed, "never")
    if len(networks) == 1:
        raise MachineError(
            f"Out of memory on one network with {networks[0].params:,} parameters at batch size {batch.size}: "
            "use a smaller --batch-size, or a machine with more memory."
        )
    memory.shrink()
    scoring.let_go()
    gc.collect()
    halves = networks[: len(networks) // 2], networks[len(networks) // 2 :]
    again = (_score(_prepared(half, lockstep), scoring.proxies, batch, scoring.seed, lockstep) for half in halves)
    return [own for half in again for own in half]


def _idle(_: int) -> None:
    """Does nothing."""


class _Scoring:
    """Networks that are being scored.

    Passes without a graph run first. A proxy is computed as soon as its passes are done, and a pass is freed when no
    other proxy waits for it, so that its results do not share memory with the graph of another. For populations all
    this is one pass behind, so that the device always has the next pass to run.
    """

    def __init__(self, prepared: Prepared, proxies: Sequence[Proxy], batch: Batch, seed: int) -> None:
        self.networks, self._population = prepared
        self.by_tape = self._population is not None
        self.proxies, self.batch, self.seed = proxies, batch, seed
        self.without_kernels = failed()
        self.results: dict[Pass, PassResult] = {}
        """results of passes that proxies still need"""
        self._waiting = [(proxy, proxy.needs) for proxy in proxies]
        self._columns: dict[str, list[Score]] = {}
        """of each network, by `Proxy.text`"""

    def launch(self, while_busy: Callable[[int], None] = _idle) -> None:
        """Runs every pass; if memory runs out, frees everything.

        `while_busy` is called with the number of passes left when a pass of a population is launched, before its
        results are read.
        """
        passes = merged(need for _, needs in self._waiting for need in needs)
        order = sorted(passes, key=lambda run: bool({name for name, _ in passes[run]} & NEED_GRAPH))
        draws = Counter(replace(run, draw=0) for run in order)
        with _unless_full():
            for left, run in zip(reversed(range(len(order))), order, strict=True):
                result = self._run(run, passes[run])
                draws[kind := replace(run, draw=0)] -= 1
                if self._population is not None and not draws[kind]:
                    self._population.let_go_of(kind)
                if isinstance(result, ResultColumns):
                    while_busy(left)
                    self._compute()
                    result.settle()
                    self.results[run] = result
                else:
                    self.results[run] = result
                    self._compute()
            self._population = None
            return
        self.let_go()

    def let_go(self) -> None:
        self._population = None
        self.results.clear()

    def finish(self) -> bool:
        """Computes the remaining proxies; returns False if memory ran out."""
        with _unless_full():
            self._compute()
        return not self._waiting

    def scores(self) -> list[Scores]:
        columns = [(proxy.text, self._columns[proxy.text]) for proxy in self.proxies]
        return [{text: column[p] for text, column in columns} for p in range(len(self.networks))]

    def _run(self, run: Pass, items: list[Item]) -> PassResult:
        """Runs the pass, of the whole population at once if possible."""
        population, batch, seed = self._population, self.batch, self.seed
        together = None if population is None else _together(run, items, population, batch, seed)
        return [run_pass(run, items, own, batch, seed) for own in self.networks] if together is None else together

    def _compute(self) -> None:
        """Computes the proxies whose passes are all done, and frees the passes that no other proxy needs."""
        for proxy, needs in self._waiting:
            if proxy.text not in self._columns and all(need.run in self.results for need in needs):
                results = [self.results[need.run] for need in needs]
                marks = [one.launched for one in results if isinstance(one, ResultColumns)]
                with on_side_stream(marks) if marks and len(marks) == len(results) else nullcontext():
                    self._columns[proxy.text] = _computed(proxy, needs, results, len(self.networks))
        self._waiting = [(proxy, needs) for proxy, needs in self._waiting if proxy.text not in self._columns]
        needed = {need.run for _, needs in self._waiting for need in needs}
        self.results = {run: result for run, result in self.results.items() if run in needed}


@contextmanager
def _unless_full() -> Iterator[None]:
    """Leaves the block, without an error, if memory runs out in it, or a kernel cannot be compiled."""
    try:
        yield
    except KernelError as error:
        give_up(error)
    except (RuntimeError, MemoryError) as error:
        if device_failed(error):
            reason = str(error).strip().splitlines()[0]
            raise MachineError(
                f"The GPU failed ({reason}). What was stored before is safe: repeat the command, which resumes there."
            ) from error
        if not out_of_memory(error):
            raise


def _together(run: Pass, items: list[Item], population: Population, batch: Batch, seed: int) -> ResultColumns | None:
    """Runs the pass for all networks at once; None if each has to run alone, if only to give its reason."""
    if batch.loss is not None:
        return None
    try:
        return run_together(run, items, population, batch, seed) if can_run(run, items, population, batch) else None
    except (ValueError, *REASONS):  # an op refuses its input: too few values for a batch norm
        return None


def _computed(proxy: Proxy, needs: Sequence[Need], results: Sequence[PassResult], count: int) -> list[Score]:
    """Returns the proxy's score of each network."""
    pairs, settings = list(zip(needs, results, strict=True)), proxy.resolved
    with torch.no_grad():
        refused = {p: why for pair in reversed(pairs) for p, why in refusals(*pair).items()}
        return [
            _without_value(refused[p])
            if p in refused
            else _value(proxy.compute, [trace(need, own, p) for need, own in pairs], settings)
            for p in range(count)
        ]


def _value(compute: Callable[..., Any], traces: Sequence[Trace], settings: dict[str, Any]) -> Score:
    try:
        value = float(compute(*traces, **settings))
    except REASONS as reason:
        return _without_value(reason)
    except UserError:
        raise
    except MISFITS as error:
        if not_of_the_network(error):
            raise
        return Score.failed(blame("the proxy", error))
    return Score(value) if math.isfinite(value) else Score.degenerate(f"the value is {value}")


def _without_value(reason: Exception) -> Score:
    if isinstance(reason, PassFailedError):
        return Score.failed(str(reason))
    unsolved = isinstance(reason, LinAlgError)
    return Score.degenerate(f"the linear algebra did not converge: {reason}" if unsolved else str(reason))
