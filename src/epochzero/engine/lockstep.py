"""Running a pass of many networks at once, each exactly as if it ran alone.

A population of plans is merged into one (`epochzero.plan.merge`). No network's output depends on another's weights, so
the gradient of the sum of their losses holds each one's own, and so do second derivatives and tangent kernels, row by
row. Layers are streamed to the proxies one network at a time, as views; a proxy's function runs on all networks of a
merged layer at once where `vmap` can take it.

What is no such pass (a proxy that runs the network itself, networks with shared parameters, a reason why not) is left
to `epochzero.engine.run`, one network after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine.failure import blaming
from epochzero.engine.inputs import like, pass_curve, pass_inputs, pass_weights
from epochzero.engine.kernels import ROWS_BYTES, rows_of
from epochzero.engine.loss import check_labels, label_loss
from epochzero.engine.network import PlanNetwork, runs_faster_channels_last
from epochzero.engine.passes import KERNELS, NEED_LABELS, Pass
from epochzero.engine.run import DEAD, NEED_FORWARD, NEED_GRAPH, OF_LAYERS, OF_LOSS_AND_LAYERS
from epochzero.engine.watch import Item
from epochzero.engine.watch_many import WatcherOfMany
from epochzero.errors import DegenerateError
from epochzero.plan import execute, execute_jet
from epochzero.plan.merge import Merged, merge, mergeable
from epochzero.plan.plan import Plan

Results = list[dict[Item, Any]]
"""of each network, what is read of a pass"""


class Population:
    """Networks that can run side by side."""

    def __init__(self, networks: Sequence[PlanNetwork]) -> None:
        self.networks = networks
        self.size = len(networks)
        self.device = networks[0].device

    @cached_property
    def merged(self) -> Merged:
        return merge([network.plan for network in self.networks])

    @staticmethod
    def fits(networks: Sequence[Any]) -> bool:
        """Whether these can be merged."""
        if not all(isinstance(network, PlanNetwork) and not network.broken for network in networks):
            return False
        plans = [network.plan for network in networks]
        shapes = {(plan.input_shapes, plan.output_shape) for plan in plans}
        return len(shapes) == 1 and len(plans[0].output_shape) == 1 and all(map(mergeable, plans))

    def variant(self, run: Pass) -> Plan:
        plan = self.merged.plan
        if run.norm == "off":
            return plan.without_norms
        return plan.with_statistics("batch" if run.norm == "train" else "running")

    def packed(self, weights: Sequence[Mapping[str, Tensor]], plan: Plan) -> dict[str, Tensor]:
        """The networks' weights, joined as the merged plan has them."""
        packs = self.merged.packs
        return {name: _joined([weights[p][own] for p, own in packs[name]]) for name in plan.weights}

    def apart(self, packed: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Packed tensors by network and by the network's own names, as views."""
        found: list[dict[str, Tensor]] = [{} for _ in self.networks]
        for name, tensor in packed.items():
            parts = self.merged.packs[name]
            for (network, own), piece in zip(parts, tensor.chunk(len(parts)), strict=True):
                found[network][own] = piece
        return found


def _joined(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def can_run(run: Pass, items: Sequence[Item], population: Population, batch: Batch) -> bool:
    """Whether the pass can be run in lockstep and nothing stands in its way that each network would have to say."""
    wanted = {name for name, _ in items}
    if "network" in wanted or ("blocks" in wanted and population.merged.blocks is None):
        return False
    if wanted & OF_LAYERS and not all(network.layer_weights for network in population.networks):
        return False
    labelled = run.inputs == "batch" and batch.part(0)[1] is not None
    return batch.layout is None and (labelled or not wanted & NEED_LABELS)


def run_together(run: Pass, items: Sequence[Item], population: Population, batch: Batch, seed: int) -> Results:
    """What `run_pass` gives for each network. Raises a reason where there is one for all of them."""
    wanted = {name for name, _ in items}
    networks = population.networks
    weights = [pass_weights(network, run, seed) for network in networks]
    facts: list[dict[str, Any]] = [{"seed": seed, "params": n.params, "flops": n.flops} for n in networks]
    for found, network, own in zip(facts, networks, weights, strict=True):
        found["weights"] = [own[name] for name in network.layer_weights]
        found["parameters"] = [own[name] for name in network.trainable]
    streams: list[dict[Item, Any]] = [{} for _ in networks]
    plan = population.variant(run)
    packed = population.packed(weights, plan)
    if run.inputs == "circle":
        read = _curve(run, population, plan, packed, batch, seed, like(weights[0], run))
    elif wanted & (NEED_FORWARD | {"labels"}):
        x, y = pass_inputs(run, batch, seed, like(weights[0], run))
        watcher = WatcherOfMany(
            population.merged, population.size, plan, [item for item in items if item[1] is not None]
        )
        read = _forward(population, plan, packed, x, y, wanted, watcher)
        streams = watcher.collected()
    else:
        read = [{} for _ in networks]
    named = [fact | own for fact, own in zip(facts, read, strict=True)]
    return [
        {item: own[item[0]] if item[0] in own else stream[item] for item in items}
        for own, stream in zip(named, streams, strict=True)
    ]


def _side_by_side(x: Tensor, count: int) -> Tensor:
    tiled = x.repeat(1, count, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]
    return tiled.contiguous(memory_format=torch.channels_last) if runs_faster_channels_last(x) else tiled


def _curve(
    run: Pass, population: Population, plan: Plan, packed: Mapping[str, Tensor], batch: Batch, seed: int, like: Tensor
) -> list[dict[str, Any]]:
    start = pass_curve(run, batch, seed, like)
    x, v, a = (_side_by_side(stream, population.size) for stream in start)
    with torch.no_grad():
        jets = execute_jet(plan, packed, [(x, v, a)])
    by_network = zip(*(stream.chunk(population.size, 1) for stream in jets), strict=True)
    return [dict(zip(("logits", "velocity", "acceleration"), streams, strict=True)) for streams in by_network]


def _forward(
    population: Population,
    plan: Plan,
    packed: dict[str, Tensor],
    x: Tensor,
    y: Tensor | None,
    wanted: set[str],
    watcher: WatcherOfMany,
) -> list[dict[str, Any]]:
    """The forward run of all, and every gradient that is wanted of it, each once."""
    found: list[dict[str, Any]] = [{"labels": y} for _ in population.networks]
    if not wanted & NEED_FORWARD:
        return found
    graph = bool(wanted & NEED_GRAPH)
    everything = bool(wanted & (KERNELS | {"parameter_gradients"}))
    layers = [name for name, param in plan.weights.items() if name in set(plan.layer_weights)]
    trainable = [name for name, param in plan.weights.items() if param.trainable]
    if graph:
        followed = trainable if everything else layers
        packed = packed | {name: packed[name].detach().requires_grad_() for name in followed}
    inputs = _side_by_side(x, population.size)
    if "input_gradients" in wanted:
        inputs = inputs.detach().requires_grad_()
    try:
        with torch.set_grad_enabled(graph):
            joint = execute(plan, packed, (inputs,), watcher if watcher.items else None)  # [B, P*K]
        logits = joint.chunk(population.size, 1)
        for one, own in zip(found, logits, strict=True):
            one["logits"] = own.detach()
        if y is not None and wanted & NEED_LABELS:
            names = list(dict.fromkeys([*trainable, *layers])) if everything else layers
            _of_loss(population, packed, names, logits, y, wanted, found, watcher)
    finally:
        watcher.release()
    if "log_gradients" in wanted:
        flows = torch.stack([own.sum().log() for own in logits])
        gradients = _gradients(flows.sum(), packed, layers, retain_graph=True)
        pairs = zip(found, population.apart(gradients), population.networks, strict=True)
        for one, by_name, network in pairs:
            one["log_gradients"] = [by_name[name] for name in network.layer_weights]
    for kind in wanted & KERNELS:
        rows = torch.stack([rows_of(kind, own, y) for own in logits]).sum(0)  # [rows]
        for one, kernel in zip(found, _kernels(rows, packed, trainable, population), strict=True):
            one[kind] = kernel
    if "input_gradients" in wanted:
        (gradient,) = torch.autograd.grad(joint.sum(), [inputs])
        for one, own_gradient in zip(found, gradient.chunk(population.size, 1), strict=True):
            one["input_gradients"] = own_gradient
    return found


def _of_loss(
    population: Population,
    packed: Mapping[str, Tensor],
    names: list[str],
    logits: Sequence[Tensor],
    y: Tensor,
    wanted: set[str],
    found: list[dict[str, Any]],
    watcher: WatcherOfMany,
) -> None:
    """The losses and their gradients, written into what is found of each network."""
    check_labels(logits[0], y)
    losses = torch.stack([label_loss(own, y, "mean") for own in logits])  # [P]
    for one, loss in zip(found, losses.detach(), strict=True):
        one["loss"] = loss
    if not wanted & (OF_LOSS_AND_LAYERS | {"parameter_gradients"}):
        return
    twice = "hessian_gradients" in wanted
    again = twice or bool(wanted & (KERNELS | {"log_gradients", "input_gradients"}))
    gradients = _gradients(losses.sum(), packed, names, create_graph=twice, retain_graph=again)
    watcher.release()
    second: dict[str, Tensor] = {}
    of_layers = {name for name in names if name in set(population.merged.plan.layer_weights)}
    if twice:
        along = torch.stack([(gradients[name].detach() * gradients[name]).sum() for name in of_layers]).sum()
        second = _gradients(along, packed, list(of_layers), retain_graph=again)
    first_apart = population.apart({name: g.detach() for name, g in gradients.items()})
    second_apart = population.apart(second)
    for network, one, own, hessian in zip(population.networks, found, first_apart, second_apart, strict=True):
        if "parameter_gradients" in wanted:
            one["parameter_gradients"] = [own[name] for name in network.trainable]
        if wanted & OF_LOSS_AND_LAYERS:
            one["gradients"] = [own[name] for name in network.layer_weights]
            dead = not torch.stack(torch._foreach_norm(one["gradients"], 1)).any()
            one["hessian_gradients"] = [hessian[name] for name in network.layer_weights] if twice else []
            if dead:
                one.update(dict.fromkeys(OF_LOSS_AND_LAYERS, DegenerateError(DEAD)))


def _gradients(
    of: Tensor, packed: Mapping[str, Tensor], names: list[str], create_graph: bool = False, retain_graph: bool = False
) -> dict[str, Tensor]:
    """By name, zeros where nothing depends on one."""
    leaves = [packed[name] for name in names]
    if not of.requires_grad or not leaves:
        return {name: torch.zeros_like(leaf) for name, leaf in zip(names, leaves, strict=True)}
    with blaming("the backward pass"):
        found = torch.autograd.grad(
            of, leaves, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
        )
    pairs = zip(names, leaves, found, strict=True)
    return {name: torch.zeros_like(leaf) if g is None else g for name, leaf, g in pairs}


def _kernels(rows: Tensor, packed: Mapping[str, Tensor], names: list[str], population: Population) -> list[Tensor]:
    """The tangent kernel of each network: the backward pass of a row serves all of them."""
    count = len(rows)
    kernels = [torch.zeros(count, count, dtype=torch.float64, device=rows.device) for _ in population.networks]
    if not rows.requires_grad:
        return kernels
    for block in _blocks(names, packed, count):
        leaves = [packed[name] for name in block]
        jacobians = [torch.zeros(count, *leaf.shape, dtype=leaf.dtype, device=leaf.device) for leaf in leaves]
        for i, row in enumerate(rows):
            found = torch.autograd.grad(row, leaves, retain_graph=True, allow_unused=True)
            for jacobian, gradient in zip(jacobians, found, strict=True):
                if gradient is not None:
                    jacobian[i] = gradient
        for name, jacobian in zip(block, jacobians, strict=True):
            parts = population.merged.packs[name]
            own = jacobian.view(count, len(parts), -1).transpose(0, 1)  # [k, rows, numbers]
            for (network, _), gram in zip(parts, (own @ own.mT).double(), strict=True):
                kernels[network] += gram
    return kernels


def _blocks(names: list[str], packed: Mapping[str, Tensor], rows: int) -> Iterator[list[str]]:
    """The packed parameters in groups whose gradients fit into memory."""
    block: list[str] = []
    size = 0
    for name in names:
        needed = rows * packed[name].nbytes
        if block and size + needed > ROWS_BYTES:
            yield block
            block, size = [], 0
        block.append(name)
        size += needed
    if block:
        yield block
