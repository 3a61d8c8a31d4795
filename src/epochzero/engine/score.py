"""Scores networks: returns one `{proxy: Score}` for each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain

from epochzero.data import Batch
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.pending import Scores
from epochzero.engine.population.grouping import MemoryBudget, PopulationMode
from epochzero.engine.population.population import Population
from epochzero.engine.population.scoring import Prepared, in_populations, score_prepared
from epochzero.engine.precision import asked_precision
from epochzero.engine.proxy import Proxy
from epochzero.engine.single.score import score_alone
from epochzero.engine.threads import fastest_threads
from epochzero.strict import deterministic, is_strict


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

    `memory` carries from one call to the next how large populations may be. A strict run forms none
    (`epochzero.strict`).
    """
    scored: list[Scored] = []
    since, waiting = time.perf_counter(), iter(networks)
    if (first := next(waiting, None)) is None:
        return scored
    networks = chain([first], waiting)
    alone = is_strict() or lockstep == "never" or (lockstep == "auto" and first.device.type != "cuda")
    with _threads(first, proxies, batch, seed):
        groups = (
            ([score_alone(network, proxies, batch, seed)] for network in networks)
            if alone
            else in_populations(networks, proxies, batch, seed, lockstep, memory or MemoryBudget())
        )
        for scores in groups:
            before, since = since, time.perf_counter()
            scored += [Scored(own, (since - before) / len(scores)) for own in scores]
    return scored


def score_network(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scored:
    """Scores one network: runs every pass that the proxies need once."""
    return score_population([network], proxies, batch, seed, "never")[0]


@deterministic()
@asked_precision()
def score_together(networks: Sequence[PlanNetwork], proxies: Sequence[Proxy], batch: Batch, seed: int) -> list[Scores]:
    """Scores mergeable networks as one population on any device, even a single network.

    `score_population` chooses when to form populations; checks that compare them with single networks must force them.
    """
    return score_prepared(Prepared(networks, Population(networks)), proxies, batch, seed, "always")


def _threads(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> AbstractContextManager[None]:
    """Torch's faster number of threads, on a CPU, for networks like this one."""
    if is_strict() or network.device.type != "cpu" or all(proxy.free for proxy in proxies):
        return nullcontext()
    return fastest_threads(batch, lambda few: score_alone(network, proxies, few, seed))
