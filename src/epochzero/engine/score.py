"""Scores of networks: a population in, one `{proxy: Score}` for each out."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from epochzero.data import Batch
from epochzero.engine.crowd import Crowd
from epochzero.engine.failure import REASONS, LinAlgError, PassFailedError, blaming, out_of_memory
from epochzero.engine.lockstep import Population, can_run, run_together
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import Pass
from epochzero.engine.proxy import Proxy
from epochzero.engine.run import merged, run_pass, trace
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


POPULATION = 256
"""networks that run side by side at most"""
ROOM = 0.6
"""of a GPU's free memory, what a population may be expected to take; it halves where that is not enough"""
Lockstep = Literal["auto", "always", "never"]
"""auto: on a GPU, which one network leaves idle"""


def score_population(
    networks: Iterable[Network], proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: Lockstep = "auto"
) -> list[Scored]:
    """Score each network. They run side by side where that is quicker; scores never depend on the neighbours."""
    waiting = iter(networks)
    found: list[Scored] = []
    while some := list(itertools.islice(waiting, 1)):
        if lockstep != "never":
            some += itertools.islice(waiting, population_size(some[0], batch) - 1)
        found += _score(some, proxies, batch, seed, lockstep)
    return found


def population_size(network: Network, batch: Batch) -> int:
    """How many networks like this one may run side by side."""
    if not isinstance(network, PlanNetwork) or network.device.type != "cuda":
        return POPULATION
    each = network.plan.activations * batch.size * torch.finfo(torch.float32).bits // 8
    fit = int(ROOM * torch.cuda.mem_get_info(network.device)[0]) // each
    return max(1, min(POPULATION, 1 << max(fit, 1).bit_length() - 1))


def score_network(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scored:
    """Run every pass that the proxies need once, and let each proxy read what it asked for."""
    return _score([network], proxies, batch, seed, "never")[0]


def _score(
    networks: Sequence[Network], proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: Lockstep
) -> list[Scored]:
    start = time.perf_counter()
    results: list[Traces] = [{} for _ in networks]
    population: Population | None = None
    if lockstep != "never" and len(networks) > 1 and Population.fits(networks):
        found = Population(networks)  # type: ignore[arg-type]
        population = found if lockstep == "always" or found.device.type != "cpu" else None
    try:
        for run, items in merged(need for proxy in proxies for need in proxy.needs).items():
            together = None
            if population is not None:
                together = _together(run, items, population, batch, seed)
            for i, network in enumerate(networks):
                results[i][run] = run_pass(run, items, network, batch, seed) if together is None else together
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        if len(networks) > 1:
            halves = networks[: len(networks) // 2], networks[len(networks) // 2 :]
            return [scored for half in halves for scored in _score(half, proxies, batch, seed, lockstep)]
        raise MachineError(
            f"Out of memory on one network with {networks[0].params:,} parameters at batch size {batch.size}: "
            "use a smaller --batch-size, or a machine with more memory."
        ) from None
    scores = [{proxy.text: _compute(proxy, found, i) for proxy in proxies} for i, found in enumerate(results)]
    seconds = (time.perf_counter() - start) / len(networks)
    return [Scored(of_network, seconds) for of_network in scores]


def _together(run: Pass, items: list[Item], population: Population, batch: Batch, seed: int) -> Crowd | None:
    """The pass in lockstep; None where each network has to run alone, if only to say why it cannot."""
    try:
        return run_together(run, items, population, batch, seed) if can_run(run, items, population, batch) else None
    except REASONS:
        return None


def _compute(proxy: Proxy, results: Traces, network: int) -> Score:
    try:
        traces = [trace(need, results[need.run], network) for need in proxy.needs]
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
