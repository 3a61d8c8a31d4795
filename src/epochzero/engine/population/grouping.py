"""Which networks run side by side: as many as a device has room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine.gpu.routine import blocks_with_routines
from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import Need, Pass
from epochzero.engine.reads import NEED_GRAPH

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
PopulationMode = Literal["auto", "always", "never"]
"""auto: on a GPU, which one network leaves idle"""


class MemoryBudget:
    """How much memory populations may be expected to take."""

    def __init__(self) -> None:
        self.share = 0.75
        """of a GPU's free memory"""

    def shrink(self) -> None:
        """A population had to halve: those to come are smaller from the start."""
        self.share *= 0.6

    def bytes_for(self, network: Network, lockstep: PopulationMode, free: Callable[[torch.device], int]) -> float:
        """Bytes that networks like this one may take together; 0 where each has to run alone."""
        if lockstep == "never" or not isinstance(network, PlanNetwork):
            return 0.0
        if network.device.type != "cuda":
            return math.inf if lockstep == "always" else 0.0
        return self.share * free(network.device)


def in_groups(
    waiting: Iterable[Network], needs: Sequence[Need], batch: Batch, lockstep: PopulationMode, memory: MemoryBudget
) -> Iterator[list[Network]]:
    """Networks in their order, as many at a time as there is room for; large ones take more of it.

    Memory is looked at once: later, populations that run take some of it.
    """
    free, group = cache(_free), None
    loads = _loads(needs, batch)
    for network in waiting:
        if group is not None and group.adds(network):
            continue
        if group is not None:
            yield group.networks
        group = _Group(network, loads, memory.bytes_for(network, lockstep, free))
    if group is not None:
        yield group.networks


class _Load(NamedTuple):
    """What a pass asks of memory, whatever the network."""

    samples: int
    order: int
    """of the derivatives that are taken"""
    relayed: bool
    """whether blocks may run by routines"""
    itemsize: int


Loads = Collection[_Load]


def _loads(needs: Iterable[Need], batch: Batch) -> Loads:
    def of(need: Need) -> _Load:
        graph = NEED_GRAPH & need.reads.keys() - {"block_gradients"}
        order = 2 if "hessian_gradients" in graph else 1 if graph else 0
        relayed = need.run.norm != "eval" and "layers" not in need.reads
        itemsize = int(getattr(torch, need.run.dtype).itemsize)
        return _Load(need.run.samples(batch.size), order, relayed, itemsize)

    return set(map(of, needs))


Routines = frozenset[str]
"""the blocks that run by routines"""


class _Group:
    """Networks that are to run side by side, and the bytes that they take together."""

    def __init__(self, first: Network, loads: Loads, room: float) -> None:
        self.loads, self.room = loads, room
        self.networks = [first]
        self.routines = _routines(first)
        self.taken = _needed(first, loads, self.routines)

    def adds(self, network: Network) -> bool:
        """Whether there was room for one more; for its sake the others may have to do without routines."""
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
        """Those that are left: none where the skeletons differ, for then networks are not merged block by block."""
        first = self.networks[0]
        if not self.routines or not isinstance(network, PlanNetwork) or not isinstance(first, PlanNetwork):
            return frozenset()
        alike = network.plan.skeleton.is_like(first.plan.skeleton)
        return self.routines & _routines(network) if alike else frozenset()


def _routines(network: Network) -> Routines:
    if not isinstance(network, PlanNetwork) or network.device.type != "cuda":
        return frozenset()
    return blocks_with_routines(network.plan)


def population_size(
    network: Network, batch: Batch, needs: Sequence[Need] = (Need(Pass(), {}),), lockstep: PopulationMode = "auto"
) -> int:
    """How many networks like this one may run side by side."""
    room = MemoryBudget().bytes_for(network, lockstep, _free)
    if math.isinf(room):
        return POPULATION
    return max(1, min(POPULATION, int(room / _needed(network, _loads(needs, batch), _routines(network)))))


def _needed(network: Network, loads: Loads, routines: Routines = frozenset()) -> float:
    """Bytes that a network takes in the largest of its passes, roughly, where these of its blocks run by routines."""
    if not isinstance(network, PlanNetwork):
        return 1.0
    plan = network.plan
    places, numbers = plan.skeleton.places, plan.activations
    in_arenas = sum(
        [part.activations for place, part in zip(places, plan.parts, strict=True) if place.name in routines]
    )
    throughout = len(routines) >= len(plan.skeleton.pieces) - 2  # but for the input and the head

    def of(load: _Load) -> float:
        there = in_arenas if load.relayed and (throughout or load.order < 2) else 0
        kept = KEPT_BY_ROUTINE[load.order] * there + KEPT[load.order] * (numbers - there)
        return (kept * load.samples + WEIGHTS_KEPT * plan.params) * load.itemsize

    return max(map(of, loads), default=1.0)


def _free(device: torch.device) -> int:
    """Bytes of a GPU that this process can have: what nobody has, up to its share, and torch's own that it lets lie."""
    index = torch.cuda.current_device() if device.index is None else device.index
    held = torch.cuda.memory_reserved(index)
    nobodys, total = torch.cuda.mem_get_info(index)
    share = int(torch.cuda.get_per_process_memory_fraction(index) * total) - held
    return min(nobodys, share) + held - torch.cuda.memory_allocated(index)
