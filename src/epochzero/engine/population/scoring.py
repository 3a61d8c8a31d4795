"""Scores networks in populations, each planned and merged while a GPU is busy with the one before it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from epochzero.data import Batch
from epochzero.engine.failure import REASONS
from epochzero.engine.gpu.arena import failed
from epochzero.engine.network import Network
from epochzero.engine.passes import Item, Pass
from epochzero.engine.pending import Pending, Scores, unless_full
from epochzero.engine.population.columns import ResultColumns
from epochzero.engine.population.cost import suits_tape
from epochzero.engine.population.grouping import MemoryBudget, PopulationMode, in_groups
from epochzero.engine.population.joint_run import can_run, run_together
from epochzero.engine.population.population import Population, no_collection
from epochzero.engine.proxy import Proxy
from epochzero.engine.reads import FACTS
from epochzero.engine.single.run import run_pass
from epochzero.engine.single.score import score_alone
from epochzero.engine.trace import PassResult


def in_populations(
    networks: Iterable[Network],
    proxies: Sequence[Proxy],
    batch: Batch,
    seed: int,
    lockstep: PopulationMode,
    memory: MemoryBudget,
) -> Iterator[list[Scores]]:
    """Yields the scores of one population after the other; networks that form none are scored alone.

    The last computations of a population wait until the first pass of the next one is launched.
    """
    needs = [need for proxy in proxies for need in proxy.needs]
    runs = any(need.reads.keys() - FACTS for need in needs)
    queue = _PopulationQueue(in_groups(networks, needs, batch, lockstep, memory), lockstep if runs else "never")
    under_way: list[_Scoring] = []

    def while_busy(left: int) -> None:
        if not left:
            queue.prepare()
        for before in under_way:
            before.finish()

    with no_collection(when=queue.forms_population()):
        for prepared in queue:
            if prepared.population is None:
                while under_way:  # its results would stay in memory
                    yield _scores(under_way.pop(0), lockstep, memory)
                for network in prepared.networks:
                    yield [score_alone(network, proxies, batch, seed)]
                continue
            now = _Scoring(prepared.networks, prepared.population, proxies, batch, seed)
            del prepared
            now.launch(while_busy)
            under_way.append(now)
            del now
            while len(under_way) > 1 or (under_way and not under_way[0].pending.results):
                yield _scores(under_way.pop(0), lockstep, memory)
        while under_way:
            yield _scores(under_way.pop(0), lockstep, memory)


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


def score_prepared(
    prepared: Prepared, proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: PopulationMode
) -> list[Scores]:
    """Returns the scores of each network."""
    if prepared.population is None:
        return [score_alone(network, proxies, batch, seed) for network in prepared.networks]
    scoring = _Scoring(prepared.networks, prepared.population, proxies, batch, seed)
    del prepared
    scoring.launch()
    return _scores(scoring, lockstep, MemoryBudget())


def _scores(scoring: _Scoring, lockstep: PopulationMode, memory: MemoryBudget) -> list[Scores]:
    """Returns the scores of launched passes; if memory ran out, scores one half of the networks after the other.

    If a kernel could not be compiled, all are scored again without kernels.
    """
    scoring.finish()
    if (scores := scoring.pending.scores()) is not None:
        return scores
    networks, again = scoring.networks, (scoring.pending.proxies, scoring.batch, scoring.seed)
    scoring.let_go()
    if failed() and not scoring.without_kernels:
        return score_prepared(_prepared(networks, lockstep), *again, lockstep)
    if len(networks) == 1:
        return [score_alone(networks[0], *again)]
    memory.shrink()
    gc.collect()
    halves = networks[: len(networks) // 2], networks[len(networks) // 2 :]
    return [own for half in halves for own in score_prepared(_prepared(half, lockstep), *again, lockstep)]


def _idle(_: int) -> None:
    """Does nothing."""


class _Scoring:
    """A population that is being scored: proxies are computed one pass behind, so that a GPU has the next to run."""

    def __init__(
        self, networks: Sequence[Network], population: Population, proxies: Sequence[Proxy], batch: Batch, seed: int
    ) -> None:
        self.networks, self.batch, self.seed = networks, batch, seed
        self.without_kernels = failed()
        self.pending = Pending(proxies, len(networks))
        self._population: Population | None = population

    def launch(self, while_busy: Callable[[int], None] = _idle) -> None:
        """Runs every pass; if memory runs out, frees everything.

        `while_busy` is called with the number of passes left when a pass is launched, before its results are read.
        """
        assert self._population is not None
        passes = self.pending.passes()
        draws = Counter(replace(run, draw=0) for run in passes)
        with unless_full():
            for left, (run, items) in zip(reversed(range(len(passes))), passes.items(), strict=True):
                result = self._run(run, items)
                draws[kind := replace(run, draw=0)] -= 1
                if not draws[kind]:
                    self._population.let_go_of(kind)
                if isinstance(result, ResultColumns):
                    while_busy(left)
                    self.pending.compute()
                    result.settle()
                    self.pending.results[run] = result
                else:
                    self.pending.results[run] = result
                    self.pending.compute()
            self._population = None
            return
        self.let_go()

    def let_go(self) -> None:
        self._population = None
        self.pending.results.clear()

    def finish(self) -> None:
        """Computes the remaining proxies for which there is memory."""
        with unless_full():
            self.pending.compute()

    def _run(self, run: Pass, items: list[Item]) -> PassResult:
        """Runs the pass, of the whole population at once if possible."""
        assert self._population is not None
        together = _together(run, items, self._population, self.batch, self.seed)
        return (
            [run_pass(run, items, own, self.batch, self.seed) for own in self.networks]
            if together is None
            else together
        )


def _together(run: Pass, items: list[Item], population: Population, batch: Batch, seed: int) -> ResultColumns | None:
    """Runs the pass for all networks at once; None if each has to run alone, if only to give its reason."""
    if batch.loss is not None:
        return None
    try:
        return run_together(run, items, population, batch, seed) if can_run(run, items, population, batch) else None
    except (ValueError, *REASONS):  # an op refuses its input: too few values for a batch norm
        return None
