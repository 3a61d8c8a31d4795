"""Networks that run as one: their merged plan and weights, and the owner of each part."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from epochzero.data.batch import Batch, Part
from epochzero.engine.gpu.arena import runs_here
from epochzero.engine.gpu.block_run import BlockRun, Recorded, can_run_blocks
from epochzero.engine.gpu.replay import Replay
from epochzero.engine.inputs import in_form, pass_inputs, pass_origin
from epochzero.engine.network import PlanNetwork, plan_for, runs_faster_channels_last
from epochzero.engine.passes import Item, Pass
from epochzero.engine.population.columns import LayerValues, Numbers, Rows
from epochzero.engine.population.merge import merge, mergeable, of_one
from epochzero.engine.population.merged import Merged
from epochzero.engine.population.tape import BackSums, Tape
from epochzero.engine.population.watch import Places, WatcherOfMany
from epochzero.plan import execute
from epochzero.plan.init import Drawing, check, constants, draw_ahead
from epochzero.plan.plan import Inlined, Node, Plan
from epochzero.types import Origin

AHEAD_ON = {"cuda"}
"""kinds of devices to which weights are copied together"""
MOST_PARAMS = 16
"""an upper bound of the number of an op's parameters"""
Owners = tuple[Numbers, Numbers, Numbers]
"""for each row of a pack of parameters: its network, its sort key among those of that network, and the row"""


class Population:
    """Networks that run as one."""

    def __init__(self, networks: Sequence[PlanNetwork]) -> None:
        self.networks = networks
        self.size = len(networks)
        self.device = networks[0].device
        self.back_sums: BackSums = {}
        self.places: Places = {}
        self.replays: dict[tuple[Pass, tuple[Item, ...]], Replay] = {}
        """captured runs of passes that differ only in their draw"""
        self._packed: dict[Origin | None, dict[str, Tensor]] = {}
        self._data: dict[Any, Part] = {}

    @cached_property
    def merged(self) -> Merged:
        plans = [network.plan for network in self.networks]
        return merge(plans) if len(plans) > 1 else of_one(plans[0])

    def prepare(self) -> None:
        """Does the work that needs no device, ahead of time."""
        self.merged.plan.with_statistics("batch").last_uses  # noqa: B018
        self.merged.members  # noqa: B018

    @staticmethod
    def fits(networks: Sequence[Any]) -> bool:
        """Returns True if the networks can be merged."""
        if not all(isinstance(network, PlanNetwork) and not network.broken for network in networks):
            return False
        plans = [network.plan for network in networks]
        alike = {(own.device, own.plan.input_shapes, own.plan.output_shape) for own in networks}
        return len(alike) == 1 and len(plans[0].output_shape) == 1 and all(map(mergeable, plans))

    @property
    def has_blocks(self) -> bool:
        """True if the networks have the same blocks, all of them inserted as blocks."""
        pieces = self.networks[0].plan.pieces
        known = all(isinstance(piece, Inlined) or "." not in piece.name for piece in pieces)
        return self.merged.blocks is not None and known

    def variant(self, run: Pass) -> Plan:
        return plan_for(self.merged.plan, run.norm)

    def packed(self, run: Pass, seed: int, plan: Plan) -> dict[str, Tensor]:
        """Returns the networks' weights for a pass, packed as the merged plan needs them."""
        origin = pass_origin(run, seed)
        if origin not in self._packed:
            self._packed = {None: self._packed[None]} if None in self._packed else {}  # others are rarely needed again
            self._packed[origin] = self._joined(origin)
        joined = self._packed[origin]
        return in_form({name: joined[name] for name in plan.weights}, run)

    def _joined(self, origin: Origin | None) -> dict[str, Tensor]:
        origins = {network.origin if origin is None else origin for network in self.networks}
        if None in origins or len(origins) > 1:
            weights = [network.weights if origin is None else network.redrawn(origin) for network in self.networks]
            return {name: torch.cat([weights[p][own] for p, own in parts]) for name, parts in self.merged.packs.items()}
        (drawn_from,) = origins
        assert drawn_from is not None
        check(drawn_from)
        if self.device.type in AHEAD_ON:
            draw_ahead(self._drawings.values(), drawn_from, self.device)
        return self._constant | {name: drawing.drawn(drawn_from) for name, drawing in self._drawings.items()}

    @cached_property
    def _drawings(self) -> dict[str, Drawing]:
        packs, params = self.merged.packs, self.merged.plan.weights
        return {
            name: Drawing([own for _, own in parts], params[name], self.device)
            for name, parts in packs.items()
            if name not in self._constant
        }

    def inputs(self, run: Pass, batch: Batch, seed: int, like: Tensor) -> Part:
        """Returns the pass's inputs and labels; data is copied to the device once, since a copy waits for its queue."""
        if run.inputs != "batch" or run.nudge:
            return pass_inputs(run, batch, seed, like)
        key = run.part, run.only, run.dtype
        if key not in self._data:
            self._data[key] = pass_inputs(run, batch, seed, like)
        return self._data[key]

    def let_go_of(self, kind: Pass) -> None:
        """Frees the captured run of a pass whose draws are all done."""
        self.replays = {key: replay for key, replay in self.replays.items() if key[0] != kind}

    def runs_by_blocks(self, run: Pass, watcher: WatcherOfMany, x: Tensor) -> bool:
        """Returns True if the pass runs by routines: our own kernels."""
        return runs_here(x) and can_run_blocks(self.merged, run.norm, watcher)

    def recorded(
        self,
        run: Pass,
        plan: Plan,
        packed: Mapping[str, Tensor],
        x: Tensor,
        follow: Collection[str],
        of_inputs: bool,
        watcher: WatcherOfMany,
    ) -> Recorded:
        """A run of all whose gradients can be taken."""
        watch = watcher if watcher.items else None
        if self.runs_by_blocks(run, watcher, x):
            return BlockRun(self.merged, run.norm, packed, x, follow, of_inputs, watch, self.back_sums)
        return Tape(plan, packed, (side_by_side(x, self.size),), follow, of_inputs, watch, self.back_sums)

    def run(self, run: Pass, plan: Plan, packed: Mapping[str, Tensor], x: Tensor, watcher: WatcherOfMany) -> None:
        """A run of all of which nothing is wanted but what is seen on the way."""
        if self.runs_by_blocks(run, watcher, x):
            BlockRun(self.merged, run.norm, packed, x, watch=watcher)
        else:
            between = "block_gradients" in watcher.streams
            inputs = side_by_side(x, self.size).requires_grad_(between)
            with torch.set_grad_enabled(between):
                execute(plan, packed, (inputs,), watcher)

    def watcher(self, plan: Plan, items: list[Item], seed: int = 0) -> WatcherOfMany:
        return WatcherOfMany(self.merged, self.size, plan, items, self.places, seed)

    def rows(self, packed: Mapping[str, Tensor], kind: Literal["layers", "trainable"]) -> Rows:
        """Returns packed tensors as values of the networks' layers or parameters."""
        pieces = [
            LayerValues(packed[name].unflatten(0, (len(networks), -1)), networks, orders, slots)  # type: ignore[no-untyped-call]
            for name, (networks, orders, slots) in self._owners[kind].items()
        ]
        return Rows(self.size, pieces)

    @cached_property
    def _owners(self) -> dict[str, dict[str, Owners]]:
        """The owners and order of each pack of layers' weights and of parameters."""
        merged = self.merged
        layers, trainable = {}, {}
        for node in merged.plan.nodes:
            for pack in node.op.layer_weights(node.params):
                layers[pack] = self._layers_of(node, pack)
        named = [
            (node, k, pack)
            for node in merged.plan.nodes
            for k, pack in enumerate(node.params)
            if merged.plan.weights[pack].trainable
        ]
        in_step = all(self._is_of_every_layer(node, pack) for node, _, pack in named)
        for node, k, pack in named:
            trainable[pack] = self._numbered(node, k) if in_step else self._in_plan(pack)
        return {"layers": layers, "trainable": trainable}

    def _is_of_every_layer(self, node: Node, pack: str) -> bool:
        """Returns True if the node is one layer of each of its networks, and the pack holds a parameter of each."""
        members = self.merged.members.get(node.name)
        return members is not None and len(members.networks) == len(self.merged.packs[pack])

    def _layers_of(self, node: Node, pack: str) -> Owners:
        """Returns the layers whose weights a pack holds: all layers of a node that runs them at once, else one."""
        if self._is_of_every_layer(node, pack):
            return self._numbered(node, 0)
        members, (network,) = self.merged.members[node.name], self.merged.packs[pack].networks
        weights = list(node.op.layer_weights(node.params))
        own = np.flatnonzero(members.slots == weights.index(pack))
        assert members.networks[own].tolist() == [network]
        return members.networks[own], members.orders[own] * MOST_PARAMS, np.zeros_like(own)

    def _numbered(self, node: Node, k: int) -> Owners:
        """Returns the owners of a node's k-th parameter, which is in the order of the layers' maps."""
        members = self.merged.members[node.name]
        return members.networks, members.orders * MOST_PARAMS + k, members.slots

    def _in_plan(self, pack: str) -> Owners:
        """Returns the same from the names; either all of a population's parameters are in this order, or none."""
        parts = list(self.merged.packs[pack])
        orders = [self._place_in_plan[p][own] for p, own in parts]
        return np.array([p for p, _ in parts]), np.array(orders), np.arange(len(parts))

    @cached_property
    def _constant(self) -> dict[str, Tensor]:
        """The packed weights that are not drawn."""
        return constants(self.merged.plan.weights, self.device)

    @cached_property
    def _place_in_plan(self) -> list[dict[str, int]]:
        return [{name: i for i, name in enumerate(network.trainable)} for network in self.networks]

    def by_network(self, joint: Tensor) -> Tensor:
        """Returns [B, P*C, ...] as [P, B, C, ...]: a view."""
        return joint.unflatten(1, (self.size, -1)).movedim(1, 0)  # type: ignore[no-untyped-call,no-any-return]


def side_by_side(x: Tensor, count: int) -> Tensor:
    """Repeats an input for `count` networks, [B, P*C, ...]."""
    if count == 1 and not runs_faster_channels_last(x):
        return x.detach()
    tiled = x.repeat(1, count, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]
    return tiled.contiguous(memory_format=torch.channels_last) if runs_faster_channels_last(x) else tiled


@contextmanager
def no_collection(when: bool = True) -> Iterator[None]:
    """Turns garbage collection off: planning makes many small objects, and scanning them takes half as long again.

    Memory is freed all the same: no large object is part of a reference cycle.
    """
    was = gc.isenabled()
    if when:
        gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
