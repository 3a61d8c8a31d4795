"""The division of networks into populations that fit into the memory of a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine.gpu import arena
from epochzero.engine.gpu.routine import blocks_with_routines
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import Need, Pass
from epochzero.engine.population.cost import Crossing, alone_is_faster, calibration, device_seconds
from epochzero.engine.reads import NEED_GRAPH
from epochzero.plan.plan import Plan

POPULATION = 512
"""the largest number of networks in a population"""


class Kept(NamedTuple):
    """The rough share of a network's activations that are in memory at once."""

    forward: float
    once: float
    """with gradients"""
    twice: float
    """with second derivatives"""


KEPT = Kept(0.8, 0.8, 1.6)
KEPT_BY_ROUTINE = Kept(0.1, 0.33, 0.7)
"""for networks that run by routines, whose blocks are freed when no gradient has to pass through them"""
WEIGHTS_KEPT = 6
"""numbers kept for each weight: the weight as drawn and in the pass's form, its gradient, and a proxy's results"""
PopulationMode = Literal["auto", "always", "never"]
"""when to form populations; `auto`: on a GPU, of networks that leave it idle one by one (`cost.py`)"""


@dataclass
class MemoryBudget:
    """The share of a GPU's memory that populations may plan to use."""

    share: float = 0.75
    """share of the free memory"""

    def shrink(self) -> None:
        """Reduces the share after a population had to be halved."""
        self.share *= 0.6

    def bytes_for(self, network: Network, lockstep: PopulationMode, free: Callable[[torch.device], int]) -> float:
        """Returns the bytes that a population of networks like this one may use; 0 if each has to run alone."""
        if lockstep == "never" or not isinstance(network, PlanNetwork):
            return 0.0
        if network.device.type != "cuda":
            return math.inf if lockstep == "always" else 0.0
        return self.share * free(network.device)


def in_groups(
    waiting: Iterable[Network], needs: Sequence[Need], batch: Batch, lockstep: PopulationMode, memory: MemoryBudget
) -> Iterator[list[Network]]:
    """Yields groups of networks, in order, each as large as memory allows.

    Free memory is measured once: later, running populations use some of it.
    """
    free, group = cache(_free), None
    loads = _loads(needs, batch)
    for network, following in pairwise(chain(waiting, [None])):
        assert network is not None
        if group is not None and group.adds(network):
            continue
        if group is not None:
            yield group.networks
        room = memory.bytes_for(network, lockstep, free)
        if lockstep == "auto" and room and _runs_alone(network, following, loads, room):
            room = 0.0
        group = _Group(network, loads, room)
    if group is not None:
        yield group.networks


class _Load(NamedTuple):
    """The demands of a pass on memory, for any network."""

    samples: int
    order: int
    """the order of its derivatives"""
    by_routines: bool
    """true if blocks may run by routines"""
    itemsize: int


Loads = Collection[_Load]


def _loads(needs: Iterable[Need], batch: Batch) -> Loads:
    def of(need: Need) -> _Load:
        graph = NEED_GRAPH & need.reads.keys() - {"block_gradients"}
        order = 2 if "hessian_gradients" in graph else 1 if graph else 0
        by_routines = need.run.norm != "eval" and "layers" not in need.reads
        itemsize = int(getattr(torch, need.run.dtype).itemsize)
        return _Load(need.run.samples(batch.size), order, by_routines, itemsize)

    return set(map(of, needs))


Routines = frozenset[str]
"""names of blocks that run by routines"""


class _Group:
    """Networks of one population, and the bytes that they need together."""

    def __init__(self, first: Network, loads: Loads, room: float) -> None:
        self.loads, self.room = loads, room
        self.networks = [first]
        self.routines = _routines(first)
        self.taken = _needed(first, loads, self.routines)

    def adds(self, network: Network) -> bool:
        """Adds a network if it fits, even if the others then have to run without routines; returns False if not."""
        if len(self.networks) == POPULATION:
            return False
        routines = self._shared(network)
        again = self.networks if routines != self.routines else []
        before = 0.0 if again else self.taken
        taken = before + sum(_needed(one, self.loads, routines) for one in (*again, network))
        if taken >= self.room:
            return False
        self.networks.append(network)
        self.routines, self.taken = routines, taken
        return True

    def _shared(self, network: Network) -> Routines:
        """Returns the routines in common: none if the skeletons differ, as they are then not merged block by block."""
        return shared(self.networks[0], self.routines, network)


def shared(first: Network, routines: Routines, network: Network) -> Routines:
    """Returns the routines that two networks have in common: none if their skeletons differ."""
    if not routines or not isinstance(network, PlanNetwork) or not isinstance(first, PlanNetwork):
        return frozenset()
    alike = network.plan.skeleton.is_like(first.plan.skeleton)
    return routines & _routines(network) if alike else frozenset()


def _routines(network: Network) -> Routines:
    if not isinstance(network, PlanNetwork) or network.device.type != "cuda" or arena.failed():
        return frozenset()
    return blocks_with_routines(network.plan)


class Estimate(NamedTuple):
    """The way a network runs on a GPU."""

    alone: bool
    """true if it is faster one by one than in populations"""
    device: float | None
    """seconds of the device for it alone; None where nothing is known"""


def estimate(networks: Sequence[Network], needs: Sequence[Need], batch: Batch) -> Estimate:
    """Returns the estimate for the first of some networks."""
    first, loads = networks[0], _loads(needs, batch)
    if not isinstance(first, PlanNetwork):
        return Estimate(True, None)
    following = networks[1] if len(networks) > 1 else None
    alone = _runs_alone(first, following, loads, MemoryBudget().bytes_for(first, "auto", _free))
    passes = [Crossing(load.samples, load.order, 0) for load in loads]
    return Estimate(alone, device_seconds(first.plan, passes, calibration(first.device)))


def _runs_alone(network: Network, following: Network | None, loads: Loads, room: float) -> bool:
    """Returns True for a network that is faster alone than in a population with this much memory.

    Routines count only if the following network shares them.
    """
    if not isinstance(network, PlanNetwork):
        return True
    plan, routines = network.plan, _routines(network)
    if following is not None:
        routines = shared(network, routines, following)
    in_arenas = _in_arenas(plan, routines)
    passes = [Crossing(load.samples, load.order, plan.activations - in_arenas(load)) for load in loads]
    networks = min(POPULATION, room / _needed(network, loads, routines))
    return networks < 2 or alone_is_faster(plan, passes, networks, calibration(network.device))


def population_size(
    network: Network, batch: Batch, needs: Sequence[Need] = (Need(Pass(), {}),), lockstep: PopulationMode = "auto"
) -> int:
    """Returns the number of networks like this one that fit into a population."""
    room = MemoryBudget().bytes_for(network, lockstep, _free)
    if math.isinf(room):
        return POPULATION
    return max(1, min(POPULATION, int(room / _needed(network, _loads(needs, batch), _routines(network)))))


def _needed(network: Network, loads: Loads, routines: Routines = frozenset()) -> float:
    """Estimates the bytes of a network's largest pass, with these of its blocks run by routines."""
    if not isinstance(network, PlanNetwork):
        return 1.0
    plan, in_arenas = network.plan, _in_arenas(network.plan, routines)

    def of(load: _Load) -> float:
        there = in_arenas(load)
        kept = KEPT_BY_ROUTINE[load.order] * there + KEPT[load.order] * (plan.activations - there)
        return (kept * load.samples + WEIGHTS_KEPT * plan.params) * load.itemsize

    return max(map(of, loads), default=1.0)


def _in_arenas(plan: Plan, routines: Routines) -> Callable[[_Load], int]:
    """Returns a function of a pass: the activations of the blocks that run by routines in it."""
    blocks = zip(plan.skeleton.places, plan.parts, strict=True)
    within = sum([part.activations for place, part in blocks if place.name in routines])
    throughout = len(routines) >= len(plan.skeleton.pieces) - 2  # but for the input and the head
    return lambda load: within if load.by_routines and (throughout or load.order < 2) else 0


def _free(device: torch.device) -> int:
    """Returns the bytes of a GPU that this process can use: free memory up to its share, and torch's unused cache."""
    index = torch.cuda.current_device() if device.index is None else device.index
    held = torch.cuda.memory_reserved(index)
    nobodys, total = torch.cuda.mem_get_info(index)
    share = int(torch.cuda.get_per_process_memory_fraction(index) * total) - held
    return min(nobodys, share) + held - torch.cuda.memory_allocated(index)
