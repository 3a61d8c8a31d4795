"""Scores of networks: a population in, one `{proxy: Score}` for each out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine.crowd import Crowd
from epochzero.engine.failure import REASONS, LinAlgError, PassFailedError, blaming, out_of_memory
from epochzero.engine.grouping import Lockstep, in_groups
from epochzero.engine.lockstep import can_run, run_together
from epochzero.engine.network import Network
from epochzero.engine.passes import FACTS, Need, Pass
from epochzero.engine.population import Population, no_collection
from epochzero.engine.precision import asked_precision
from epochzero.engine.proxy import Proxy
from epochzero.engine.run import NEED_GRAPH, merged, run_pass, trace
from epochzero.engine.watch import Item
from epochzero.errors import DegenerateError, MachineError
from epochzero.types import Score

Traces = dict[Pass, dict[Item, object] | Crowd]
"""what was found of each pass: of this network, or of a population that it is part of"""
MISFITS = (RuntimeError, ValueError, IndexError, ArithmeticError)
"""what a proxy raises over shapes and numbers that it was not made for; other errors are bugs"""


@dataclass(frozen=True)
class Scored:
    """What the proxies say of one network, and how long they took."""

    scores: dict[str, Score]
    """by `Proxy.text`"""
    seconds: float


@asked_precision()
def score_population(
    networks: Iterable[Network], proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: Lockstep = "auto"
) -> list[Scored]:
    """Score each network. They run side by side where that is quicker; scores never depend on the neighbours."""
    found: list[Scored] = []
    needs = [need for proxy in proxies for need in proxy.needs]
    runs = any(need.reads.keys() - FACTS for need in needs)
    line = _Line(in_groups(networks, needs, batch, lockstep), lockstep if runs else "never")
    for prepared in line:
        found += _score(prepared, proxies, batch, seed, lockstep, line.prepare)
    return found


class _Line:
    """Populations one after the other, each planned and merged while a GPU is busy with the one before it.

    The thread that launches does that, too: two would wait for each other's turn at every launch.
    """

    def __init__(self, groups: Iterator[list[Network]], lockstep: Lockstep) -> None:
        self._groups, self._lockstep = groups, lockstep
        self._next: Prepared | None = None

    @no_collection()
    def prepare(self) -> None:
        """The next one, where that has not been done."""
        if self._next is None and (group := next(self._groups, None)) is not None:
            self._next = _prepared(group, self._lockstep)

    def __iter__(self) -> Iterator[Prepared]:
        self.prepare()
        while (now := self._next) is not None:
            self._next = None
            yield now
            self.prepare()


@asked_precision()
def score_network(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scored:
    """Run every pass that the proxies need once, and let each proxy read what it asked for."""
    return _score(Prepared([network], None), proxies, batch, seed, "never")[0]


class Prepared(NamedTuple):
    """Networks that are scored at a time, and how they run side by side where they do."""

    networks: Sequence[Network]
    population: Population | None


def _prepared(networks: Sequence[Network], lockstep: Lockstep) -> Prepared:
    if lockstep == "never" or len(networks) < 2 or not Population.fits(networks):
        return Prepared(networks, None)
    population = Population(networks)  # type: ignore[arg-type]
    population.prepare()
    return Prepared(networks, population)


def _idle() -> None:
    """Nothing, meanwhile."""


def _score(
    prepared: Prepared,
    proxies: Sequence[Proxy],
    batch: Batch,
    seed: int,
    lockstep: Lockstep,
    meanwhile: Callable[[], None] = _idle,
) -> list[Scored]:
    start = time.perf_counter()
    networks = prepared.networks
    scores = _run_all(prepared, proxies, batch, seed, meanwhile)
    if scores is None and len(networks) == 1:
        raise MachineError(
            f"Out of memory on one network with {networks[0].params:,} parameters at batch size {batch.size}: "
            "use a smaller --batch-size, or a machine with more memory."
        )
    if scores is None:
        halves = networks[: len(networks) // 2], networks[len(networks) // 2 :]
        del prepared
        parts = (_score(_prepared(half, lockstep), proxies, batch, seed, lockstep) for half in halves)
        return [scored for part in parts for scored in part]
    seconds = (time.perf_counter() - start) / len(networks)
    return [Scored({proxy.text: of_network[proxy.text] for proxy in proxies}, seconds) for of_network in scores]


def _run_all(
    prepared: Prepared, proxies: Sequence[Proxy], batch: Batch, seed: int, meanwhile: Callable[[], None] = _idle
) -> list[dict[str, Score]] | None:
    """The scores of each network; None where memory runs out.

    Passes that keep no graph come first. A proxy is computed as soon as it can be, and a pass is let go of when no
    other proxy waits for it: what is found of one pass need not lie beside the graph of another. `meanwhile` is called
    when a device has a pass of a population to run, before anything is read of it.
    """
    networks, population = prepared
    waiting = [(proxy, proxy.needs) for proxy in proxies]
    passes = merged(need for _, needs in waiting for need in needs)
    results: list[Traces] = [{} for _ in networks]
    scores: list[dict[str, Score]] = [{} for _ in networks]
    try:
        waiting = _compute_ready(waiting, results, scores)
        for run in sorted(passes, key=lambda run: bool({name for name, _ in passes[run]} & NEED_GRAPH)):
            items = passes[run]
            together = None if population is None else _together(run, items, population, batch, seed)
            for found, network in zip(results, networks, strict=True):
                found[run] = run_pass(run, items, network, batch, seed) if together is None else together
            if together is not None:
                meanwhile()
            waiting = _compute_ready(waiting, results, scores)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None
    return scores


Waiting = list[tuple[Proxy, tuple[Need, ...]]]


def _compute_ready(waiting: Waiting, results: Sequence[Traces], scores: Sequence[dict[str, Score]]) -> Waiting:
    """Compute the proxies whose passes are all there, forget passes that no other needs, and say which still wait."""
    done = results[0].keys()
    ready = [(proxy, needs) for proxy, needs in waiting if all(need.run in done for need in needs)]
    for i, (found, own) in enumerate(zip(results, scores, strict=True)):
        own |= {proxy.text: _compute(proxy, needs, found, i) for proxy, needs in ready}
    left = [(proxy, needs) for proxy, needs in waiting if proxy.text not in scores[0]]
    needed = {need.run for _, needs in left for need in needs}
    for found in results:
        for run in found.keys() - needed:
            del found[run]
    return left


def _together(run: Pass, items: list[Item], population: Population, batch: Batch, seed: int) -> Crowd | None:
    """The pass in lockstep; None where each network has to run alone, if only to say why it cannot."""
    try:
        return run_together(run, items, population, batch, seed) if can_run(run, items, population, batch) else None
    except (ValueError, *REASONS):  # an op refuses its input: too few values for a batch norm
        return None


def _compute(proxy: Proxy, needs: Sequence[Need], results: Traces, network: int) -> Score:
    try:
        traces = [trace(need, results[need.run], network) for need in needs]
        with torch.no_grad(), blaming("the proxy", MISFITS):
            value = float(proxy.compute(*traces, **proxy.resolved))
    except PassFailedError as reason:
        return Score.failed(str(reason))
    except DegenerateError as reason:
        return Score.degenerate(str(reason))
    except LinAlgError as error:
        return Score.degenerate(f"the linear algebra did not converge: {error}")
    if not math.isfinite(value):
        return Score.degenerate(f"the value is {value}")
    return Score(value)
