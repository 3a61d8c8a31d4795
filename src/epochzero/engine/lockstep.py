"""Running a pass of many networks at once, each exactly as if it ran alone.

A population of plans is merged into one (`epochzero.plan.merge`). No network's output depends on another's weights, so
the gradient of the sum of their losses holds each one's own, and so do second derivatives and tangent kernels, row by
row. A proxy's function of a layer runs on all networks of a merged layer at once where `vmap` can take it; what is
found is a `Crowd`.

What is no such pass (a proxy that runs the network itself, networks with shared parameters, a reason why not) is left
to `epochzero.engine.run`, one network after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from epochzero.data.batch import Batch, Part
from epochzero.engine.crowd import Crowd, Numbers, Piece, Rows
from epochzero.engine.gradients import gradients, product
from epochzero.engine.inputs import in_form, like, pass_curve, pass_inputs, pass_origin
from epochzero.engine.kernels_many import beside, tangent_kernels
from epochzero.engine.loss import check_labels, label_loss
from epochzero.engine.network import PlanNetwork, runs_faster_channels_last
from epochzero.engine.passes import IN_PASSING, KERNELS, NEED_LABELS, Pass
from epochzero.engine.replay import Replay
from epochzero.engine.run import DEAD, NEED_FORWARD, NEED_GRAPH, OF_LAYERS, OF_LOSS_AND_LAYERS
from epochzero.engine.watch import Item
from epochzero.engine.watch_many import Places, WatcherOfMany
from epochzero.errors import DegenerateError
from epochzero.plan import execute, execute_jet
from epochzero.plan.init import constants, draw_many
from epochzero.plan.merge import Merged, merge, mergeable
from epochzero.plan.ops.wiring import Zero
from epochzero.plan.plan import Inlined, Plan
from epochzero.plan.tape import INPUT, BackSums, Seen, Tape
from epochzero.types import Origin

MOST_PARAMS = 16
"""no op has as many parameters"""


class Population:
    """Networks that can run side by side."""

    def __init__(self, networks: Sequence[PlanNetwork]) -> None:
        self.networks = networks
        self.size = len(networks)
        self.device = networks[0].device
        self.back_sums: BackSums = {}
        self.places: Places = {}
        self.replays: dict[tuple[Pass, tuple[Item, ...]], Replay] = {}
        """of passes that differ only in their draw"""
        self._packed: dict[Origin | None, dict[str, Tensor]] = {}
        self._data: dict[Any, Part] = {}

    @cached_property
    def merged(self) -> Merged:
        return merge([network.plan for network in self.networks])

    def prepare(self) -> None:
        """What takes time and no device, before it is needed."""
        with _no_collection():
            self.merged.plan.with_statistics("batch").last_uses  # noqa: B018
            self.merged.members  # noqa: B018

    @staticmethod
    def fits(networks: Sequence[Any]) -> bool:
        """Whether these can be merged."""
        if not all(isinstance(network, PlanNetwork) and not network.broken for network in networks):
            return False
        plans = [network.plan for network in networks]
        shapes = {(plan.input_shapes, plan.output_shape) for plan in plans}
        return len(shapes) == 1 and len(plans[0].output_shape) == 1 and all(map(mergeable, plans))

    @property
    def has_blocks(self) -> bool:
        """Whether the networks have the same blocks, and all of them are known: they were put in as such."""
        pieces = self.networks[0].plan.pieces
        known = all(isinstance(piece, Inlined) or "." not in piece.name for piece in pieces)
        return self.merged.blocks is not None and known

    def variant(self, run: Pass) -> Plan:
        plan = self.merged.plan
        if run.norm == "off":
            return plan.without_norms
        return plan.with_statistics("batch" if run.norm == "train" else "running")

    def packed(self, run: Pass, seed: int, plan: Plan) -> dict[str, Tensor]:
        """The networks' weights for a pass, joined as the merged plan has them."""
        origin = pass_origin(run, seed)
        if origin not in self._packed:
            self._packed = {None: self._packed[None]} if None in self._packed else {}  # others are seldom asked again
            self._packed[origin] = self._joined(origin)
        joined = self._packed[origin]
        return in_form({name: joined[name] for name in plan.weights}, run)

    def _joined(self, origin: Origin | None) -> dict[str, Tensor]:
        origins = {network.origin if origin is None else origin for network in self.networks}
        packs, params = self.merged.packs, self.merged.plan.weights
        if None in origins or len(origins) > 1:
            weights = [network.weights if origin is None else network.redrawn(origin) for network in self.networks]
            return {name: torch.cat([weights[p][own] for p, own in parts]) for name, parts in packs.items()}
        (drawn_from,) = origins
        assert drawn_from is not None
        return self._constant | {
            name: draw_many([own for _, own in parts], params[name], drawn_from, self.device)
            for name, parts in packs.items()
            if name not in self._constant
        }

    def inputs(self, run: Pass, batch: Batch, seed: int, like: Tensor) -> Part:
        """The pass's inputs and labels; data is brought to the device once, since that waits for what runs there."""
        if run.inputs != "batch" or run.nudge:
            return pass_inputs(run, batch, seed, like)
        key = run.part, run.only, run.dtype
        if key not in self._data:
            self._data[key] = pass_inputs(run, batch, seed, like)
        return self._data[key]

    def watcher(self, plan: Plan, items: list[Item], seed: int = 0) -> WatcherOfMany:
        return WatcherOfMany(self.merged, self.size, plan, items, self.places, seed)

    def rows(self, packed: Mapping[str, Tensor], kind: Literal["layers", "trainable"]) -> Rows:
        """Packed tensors as values of the networks' layers or parameters."""
        pieces = [
            Piece(packed[name].unflatten(0, (len(networks), -1)), networks, orders, slots)  # type: ignore[no-untyped-call]
            for name, (networks, orders, slots) in self._owners[kind].items()
        ]
        return Rows(self.size, pieces)

    @cached_property
    def _owners(self) -> dict[str, dict[str, tuple[Numbers, Numbers, Numbers]]]:
        """For each pack of layers' weights and of parameters, whose they are and in which order they come."""
        layers, trainable = {}, {}
        for node in self.merged.plan.nodes:
            for k, pack in enumerate(node.params):
                parts = self.merged.packs[pack]
                members = self.merged.members.get(node.name)
                if members is None or len(members.networks) != len(parts):
                    order = self._place_in_plan
                    networks = np.array([p for p, _ in parts])
                    orders = np.array([order[p][own] for p, own in parts])
                else:
                    networks, orders = members.networks, members.orders * MOST_PARAMS + k
                owners = networks, orders, np.arange(len(parts))
                if k == 0 and node.op.kind in ("conv", "linear"):
                    layers[pack] = owners
                if self.merged.plan.weights[pack].trainable:
                    trainable[pack] = owners
        return {"layers": layers, "trainable": trainable}

    @cached_property
    def _constant(self) -> dict[str, Tensor]:
        """Packed weights that are not drawn."""
        return constants(self.merged.plan.weights, self.device)

    @cached_property
    def _place_in_plan(self) -> list[dict[str, int]]:
        return [{name: i for i, name in enumerate(network.plan.weights)} for network in self.networks]

    def by_network(self, joint: Tensor) -> Tensor:
        """[B, P*C, ...] as [P, B, C, ...]: a view."""
        return joint.unflatten(1, (self.size, -1)).movedim(1, 0)  # type: ignore[no-untyped-call,no-any-return]


def can_run(run: Pass, items: Sequence[Item], population: Population, batch: Batch) -> bool:
    """Whether the pass can be run in lockstep and nothing stands in its way that each network would have to say."""
    wanted = {name for name, _ in items}
    if "network" in wanted or (wanted & {"blocks", "block_gradients"} and not population.has_blocks):
        return False
    if "block_gradients" in wanted and any(map(_cut_at_once, population.networks)):
        return False
    if wanted & OF_LAYERS and not all(network.plan.has_layers for network in population.networks):
        return False
    labelled = run.inputs == "batch" and batch.part(0)[1] is not None
    return batch.layout is None and (labelled or not wanted & NEED_LABELS)


def _cut_at_once(network: PlanNetwork) -> bool:
    """Whether something is cut up to the end of the first block: gradients of later blocks may not count then."""
    for piece in network.plan.pieces:
        nodes = piece.block.nodes if isinstance(piece, Inlined) else (piece,)
        if any(isinstance(node.op, Zero) for node in nodes):
            return True
        if isinstance(piece, Inlined):
            return False
    return False


def run_together(run: Pass, items: Sequence[Item], population: Population, batch: Batch, seed: int) -> Crowd:
    """What `run_pass` gives for each network. Raises a reason where there is one for all of them."""
    wanted = {name for name, _ in items}
    networks = population.networks
    found = Crowd(population.size)
    found.facts["seed"] = [seed] * population.size
    found.facts["params"] = [network.params for network in networks] if "params" in wanted else []
    found.facts["flops"] = [network.flops for network in networks] if "flops" in wanted else []
    if not wanted - found.facts.keys():
        return found
    plan = population.variant(run)
    packed = population.packed(run, seed, plan)
    if "weights" in wanted:
        found.rows["weights", None] = population.rows(packed, "layers")
    if "parameters" in wanted:
        found.rows["parameters", None] = population.rows(packed, "trainable")
    if run.inputs == "circle":
        _curve(run, population, plan, packed, batch, seed, found)
    elif wanted & (NEED_FORWARD | {"labels"}):
        x, y = population.inputs(run, batch, seed, like(packed, run))
        found.facts["labels"] = [y] * population.size
        if y is not None and wanted & NEED_LABELS:  # looked at here: on a GPU that would wait for what runs there
            check_labels((len(y), *networks[0].plan.output_shape), batch.part(run.part)[1])  # type: ignore[arg-type]
        streams = [item for item in items if item[1] is not None]
        if "block_gradients" in wanted:
            passing = [item for item in streams if item[0] != "layer_gradients"]
            streams = [item for item in streams if item[0] == "layer_gradients"]
            wanted = wanted - {name for name, _ in passing}
            found.rows |= _between_blocks(population, plan, packed, x, passing, seed)
        if wanted & NEED_FORWARD and not wanted & NEED_FORWARD - IN_PASSING:
            replay = population.replays.setdefault((replace(run, draw=0), tuple(streams)), Replay())
            pieces = replay(partial(_in_passing, population, plan, streams), packed, x)
            found.rows |= {item: Rows(population.size, own) for item, own in pieces.items()}
            return found
        watcher = population.watcher(plan, streams)
        if wanted & KERNELS:
            with beside(population.device):
                _forward(population, plan, packed, x, y, wanted, watcher, found)
        elif wanted & NEED_FORWARD:
            _forward(population, plan, packed, x, y, wanted, watcher, found)
        found.rows |= watcher.collected()
    return found


def _between_blocks(
    population: Population, plan: Plan, packed: Mapping[str, Tensor], x: Tensor, items: list[Item], seed: int
) -> dict[Item, Rows]:
    """A run that sends random signs back from block to block as it goes, and feeds other streams in passing."""
    watcher = population.watcher(plan, items, seed)
    with torch.enable_grad():
        execute(plan, packed, (_side_by_side(x, population.size).requires_grad_(),), watcher)
    return watcher.collected()


def _in_passing(
    population: Population, plan: Plan, items: list[Item], packed: Mapping[str, Tensor], x: Tensor
) -> WatcherOfMany:
    """A run of which nothing is wanted but streams."""
    watcher = population.watcher(plan, items)
    with torch.no_grad():
        execute(plan, packed, (_side_by_side(x, population.size),), watcher)
    return watcher


def _side_by_side(x: Tensor, count: int) -> Tensor:
    tiled = x.repeat(1, count, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]
    return tiled.contiguous(memory_format=torch.channels_last) if runs_faster_channels_last(x) else tiled


def _curve(
    run: Pass, population: Population, plan: Plan, packed: Mapping[str, Tensor], batch: Batch, seed: int, found: Crowd
) -> None:
    streams = pass_curve(run, batch, seed, like(packed, run))
    x, v, a = (_side_by_side(stream, population.size) for stream in streams)
    with torch.no_grad():
        jets = execute_jet(plan, packed, [(x, v, a)])
    for name, stream in zip(("logits", "velocity", "acceleration"), jets, strict=True):
        found.tensors[name] = population.by_network(stream)


def _forward(
    population: Population,
    plan: Plan,
    packed: dict[str, Tensor],
    x: Tensor,
    y: Tensor | None,
    wanted: set[str],
    watcher: WatcherOfMany,
    found: Crowd,
) -> None:
    """The forward run of all, and every gradient that is wanted of it, each once."""
    everything = bool(wanted & (KERNELS | {"parameter_gradients"}))
    layers = list(plan.layer_weights)
    trainable = [name for name, param in plan.weights.items() if param.trainable]
    graph = bool(wanted & NEED_GRAPH)
    followed = (trainable if everything else layers) if graph else ()
    inputs = _side_by_side(x, population.size)
    of_inputs = "input_gradients" in wanted
    tape = Tape(plan, packed, (inputs,), followed, of_inputs, watcher if watcher.items else None, population.back_sums)
    logits = population.by_network(tape.output)  # [P, B, K]
    found.tensors["logits"] = logits

    def back(of: Callable[[Tensor], Tensor], names: Sequence[str], seen: Seen | None = None) -> dict[str, Tensor]:
        """By name, the gradients of a sum over networks, each a function of its own logits [B, P*K]."""
        with torch.enable_grad():
            joint = tape.output.detach().requires_grad_()
            (start,) = torch.autograd.grad(of(joint), [joint])
        return tape.gradients(start, names, seen)

    if y is not None and wanted & NEED_LABELS:
        names = list(dict.fromkeys([*trainable, *layers])) if everything else layers
        _of_loss(population, packed, names, logits, y, wanted, found, watcher, back)
    if "hessian_gradients" in wanted and y is not None:
        _curvature_along(population, plan, packed, inputs, y, layers, found)
    if "log_gradients" in wanted:
        by_name = back(lambda joint: population.by_network(joint).sum((1, 2)).log().sum(), layers)
        found.rows["log_gradients", None] = population.rows(_filled(by_name, packed, layers), "layers")
    for kind in wanted & KERNELS:
        found.tensors[kind] = tangent_kernels(kind, y, tape, packed, trainable, population)
    if of_inputs:
        gradient = back(torch.sum, [INPUT]).get(INPUT, torch.zeros_like(inputs))
        found.tensors["input_gradients"] = population.by_network(gradient)


def _of_loss(
    population: Population,
    packed: Mapping[str, Tensor],
    names: list[str],
    logits: Tensor,
    y: Tensor,
    wanted: set[str],
    found: Crowd,
    watcher: WatcherOfMany,
    back: Callable[..., dict[str, Tensor]],
) -> None:
    """The losses and their gradients."""
    found.tensors["loss"] = _losses(logits, y)
    if not wanted & (OF_LOSS_AND_LAYERS | {"parameter_gradients"}):
        return
    by_name = back(lambda joint: _losses(population.by_network(joint), y).sum(), names, watcher.arrived)
    gradients = _filled(by_name, packed, names)
    if "parameter_gradients" in wanted:
        found.rows["parameter_gradients", None] = population.rows(gradients, "trainable")
    if wanted & OF_LOSS_AND_LAYERS:
        found.rows["gradients", None] = population.rows(gradients, "layers")
        found.whys |= dict.fromkeys(OF_LOSS_AND_LAYERS, _dead)


def _dead(found: Crowd) -> dict[int, Exception]:
    """The networks whose layers get no gradient."""
    felt = [found.of_layers(_absolute_sum, [(found, ("gradients", None))], p) for p in range(found.size)]
    return {p: DegenerateError(DEAD) for p, own in enumerate(felt) if own is not None and not own.any()}


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """Of each network [P], from logits [P, B, K]."""
    return label_loss(logits.flatten(0, 1), y.repeat(len(logits))).view(len(logits), -1).mean(1)


def _curvature_along(
    population: Population,
    plan: Plan,
    packed: Mapping[str, Tensor],
    inputs: Tensor,
    y: Tensor,
    layers: list[str],
    found: Crowd,
) -> None:
    """The Hessians' products with the gradients: twice through one graph of everything."""
    own = dict(packed) | {name: packed[name].detach().requires_grad_() for name in layers}
    leaves = [own[name] for name in layers]
    with torch.enable_grad():
        loss = _losses(population.by_network(execute(plan, own, (inputs.detach(),))), y).sum()
    first = gradients(loss, leaves, create_graph=True)
    second = dict(zip(layers, product(first, leaves), strict=True))
    found.rows["hessian_gradients", None] = population.rows(second, "layers")


def _filled(by_name: Mapping[str, Tensor], packed: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """With zeros where nothing depends on a parameter."""
    return {name: by_name[name] if name in by_name else torch.zeros_like(packed[name]) for name in names}


def _absolute_sum(gradient: Tensor) -> Tensor:
    """Exactly zero for zeros alone, as a sum of squares may not be."""
    return gradient.abs().sum()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Merging makes many small objects, and looking through them for garbage takes half as long again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
