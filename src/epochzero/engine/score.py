"""Scores of networks: a population in, one `{proxy: Score}` for each out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine.crowd import Crowd
from epochzero.engine.failure import REASONS, LinAlgError, PassFailedError, blaming, out_of_memory
from epochzero.engine.lockstep import can_run, run_together
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import FACTS, Need, Pass
from epochzero.engine.population import Population, no_collection
from epochzero.engine.precision import asked_precision
from epochzero.engine.proxy import Proxy
from epochzero.engine.run import NEED_GRAPH, merged, run_pass, trace
from epochzero.engine.watch import Item
from epochzero.errors import DegenerateError, MachineError
from epochzero.plan.merge import outline
from epochzero.plan.plan import Inlined
from epochzero.plan.routine import blocks_with_routines
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


POPULATION = 512
"""networks that run side by side at most"""


class Kept(NamedTuple):
    """Of the numbers that a network's nodes give, those that lie in memory at a time, roughly."""

    forward: float
    once: float
    """where gradients are taken"""
    twice: float
    """where their derivatives are, too"""


KEPT = Kept(0.8, 0.8, 1.6)
KEPT_BY_ROUTINE = Kept(0.1, 0.33, 0.7)
"""of networks that run by routines: their blocks are let go of where nothing goes back through them"""
WEIGHTS_KEPT = 6
"""numbers for each weight: drawn, in the pass's form, its gradient, and what a proxy makes of them"""
ROOM = 0.75
"""of a GPU's free memory, what a population may be expected to take; it halves where that is not enough"""
Lockstep = Literal["auto", "always", "never"]
"""auto: on a GPU, which one network leaves idle"""


@asked_precision()
def score_population(
    networks: Iterable[Network], proxies: Sequence[Proxy], batch: Batch, seed: int, lockstep: Lockstep = "auto"
) -> list[Scored]:
    """Score each network. They run side by side where that is quicker; scores never depend on the neighbours."""
    found: list[Scored] = []
    needs = [need for proxy in proxies for need in proxy.needs]
    runs = any(need.reads.keys() - FACTS for need in needs)
    line = _Line(_in_groups(networks, needs, batch, lockstep), lockstep if runs else "never")
    for prepared in line:
        found += _score(prepared, proxies, batch, seed, lockstep, line.prepare)
    return found


def _in_groups(
    waiting: Iterable[Network], needs: Sequence[Need], batch: Batch, lockstep: Lockstep
) -> Iterator[list[Network]]:
    """Networks in their order, as many at a time as there is room for; large ones take more of it.

    Memory is looked at once: later, populations that run take some of it.
    """
    free, group = cache(_free), None
    for network in waiting:
        if group is not None and group.adds(network):
            continue
        if group is not None:
            yield group.networks
        group = _Group(network, needs, batch, _room(network, lockstep, free))
    if group is not None:
        yield group.networks


Routines = frozenset[str]
"""the blocks that run by routines"""


class _Group:
    """Networks that are to run side by side, and the bytes that they take together."""

    def __init__(self, first: Network, needs: Sequence[Need], batch: Batch, room: float) -> None:
        self.needs, self.batch, self.room = needs, batch, room
        self.networks = [first]
        self.outline = outline(first.plan) if isinstance(first, PlanNetwork) else None
        self.routines = _routines(first)
        self.taken = _needed(first, needs, batch, self.routines)

    def adds(self, network: Network) -> bool:
        """Whether there was room for one more; for its sake the others may have to do without routines."""
        if len(self.networks) == POPULATION:
            return False
        routines = self._shared(network)
        again = self.networks if routines != self.routines else []
        before = 0.0 if again else self.taken
        taken = before + sum(_needed(one, self.needs, self.batch, routines) for one in (*again, network))
        if taken >= self.room:
            return False
        self.networks.append(network)
        self.routines, self.taken = routines, taken
        return True

    def _shared(self, network: Network) -> Routines:
        """Those that are left: none where the skeletons differ, for then networks are not merged block by block."""
        if not self.routines or not isinstance(network, PlanNetwork) or self.outline != outline(network.plan):
            return frozenset()
        return self.routines & _routines(network)


def _routines(network: Network) -> Routines:
    if not isinstance(network, PlanNetwork) or network.device.type != "cuda":
        return frozenset()
    return blocks_with_routines(network.plan)


def population_size(
    network: Network, batch: Batch, needs: Sequence[Need] = (Need(Pass(), {}),), lockstep: Lockstep = "auto"
) -> int:
    """How many networks like this one may run side by side."""
    room = _room(network, lockstep, _free)
    if math.isinf(room):
        return POPULATION
    return max(1, min(POPULATION, int(room / _needed(network, needs, batch, _routines(network)))))


def _room(network: Network, lockstep: Lockstep, free: Callable[[torch.device], int]) -> float:
    """Bytes that networks like this one may take together; 0 where each has to run alone."""
    if lockstep == "never" or not isinstance(network, PlanNetwork):
        return 0.0
    if network.device.type != "cuda":
        return math.inf if lockstep == "always" else 0.0
    return ROOM * free(network.device)


def _needed(network: Network, needs: Sequence[Need], batch: Batch, routines: Routines = frozenset()) -> float:
    """Bytes that a network takes in the largest of its passes, roughly, where these of its blocks run by routines."""
    if not isinstance(network, PlanNetwork):
        return 1.0
    plan = network.plan
    in_arenas = sum(p.block.activations for p in plan.pieces if isinstance(p, Inlined) and p.name in routines)
    bends = len(routines) >= len(plan.pieces) - 2  # all but the input and the head, as second derivatives need it

    def of(need: Need) -> float:
        graph = NEED_GRAPH & need.reads.keys() - {"block_gradients"}
        order = 2 if "hessian_gradients" in graph else 1 if graph else 0
        relayed = need.run.norm != "eval" and "layers" not in need.reads and (bends or order < 2)
        there = in_arenas if relayed else 0
        kept = KEPT_BY_ROUTINE[order] * there + KEPT[order] * (plan.activations - there)
        numbers = kept * need.run.samples(batch.size) + WEIGHTS_KEPT * network.params
        return numbers * int(getattr(torch, need.run.dtype).itemsize)

    return max(map(of, needs), default=1.0)


def _free(device: torch.device) -> int:
    """Bytes of a GPU that this process can have: what nobody has, up to its share, and torch's own that it lets lie."""
    index = torch.cuda.current_device() if device.index is None else device.index
    held = torch.cuda.memory_reserved(index)
    nobodys, total = torch.cuda.mem_get_info(index)
    share = int(torch.cuda.get_per_process_memory_fraction(index) * total) - held
    return min(nobodys, share) + held - torch.cuda.memory_allocated(index)


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
