"""Runs a pass of many networks at once, with the results of each as if it ran alone.

A population of plans is merged into one plan. No network's output depends on another's weights, so the gradient of the
sum of their losses holds the gradient of each, and the same is true of second derivatives and of tangent kernels, row
by row. A proxy's function of a layer runs on all networks of a merged layer at once if `vmap` supports it. The results
are `ResultColumns`.

Other passes (of proxies that run the network themselves, networks with shared parameters, passes that fail for some
networks) are left to `epochzero.engine.single.run`, one network after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from epochzero.data.batch import Batch
from epochzero.engine import foreach
from epochzero.engine.gpu.block_run import BlockRun
from epochzero.engine.gpu.graph import own_stream
from epochzero.engine.gpu.replay import Replay
from epochzero.engine.gpu.side_stream import HostCopy
from epochzero.engine.inputs import like, pass_curve
from epochzero.engine.loss import check_labels, label_loss, log_sums
from epochzero.engine.network import PlanNetwork, jet_of
from epochzero.engine.passes import Item, Pass, in_lists
from epochzero.engine.population.columns import ResultColumns, Rows
from epochzero.engine.population.kernels import tangent_kernels
from epochzero.engine.population.population import Population, side_by_side
from epochzero.engine.population.tape import INPUT, Seen
from epochzero.engine.population.watch import WatcherOfMany
from epochzero.engine.reads import (
    FORWARD_STREAMS,
    KERNELS,
    LAYER_LOSS_GRADIENTS,
    LOSS_GRADIENTS,
    NEED_FORWARD,
    NEED_GRAPH,
    NEED_LABELS,
    OF_LAYERS,
    OF_TRAINABLE,
)
from epochzero.engine.single.gradients import gradients, product
from epochzero.engine.single.responses import UNFELT, Signed, are_faint, faint_and_rounding
from epochzero.engine.single.run import DEAD
from epochzero.errors import DegenerateError
from epochzero.plan import execute
from epochzero.plan.plan import Inlined, Plan


def can_run(run: Pass, items: Sequence[Item], population: Population, batch: Batch) -> bool:
    """Returns True if the pass can run for all networks at once, with no reason against it that differs by network."""
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
    """Returns True if an edge is cut up to the end of the first block: gradients of later blocks may then be zero."""
    for piece in network.plan.pieces:
        nodes = piece.block.nodes if isinstance(piece, Inlined) else (piece,)
        if any(node.op.kind == "zero" for node in nodes):
            return True
        if isinstance(piece, Inlined):
            return False
    return False


def run_together(run: Pass, items: Sequence[Item], population: Population, batch: Batch, seed: int) -> ResultColumns:
    """Returns the results of `run_pass` for each network. Raises a reason if it holds for all of them."""
    wanted = {name for name, _ in items}
    networks = population.networks
    columns = ResultColumns(population.size, population.device)
    columns.facts["seed"] = [seed] * population.size
    for fact in ("params", "flops", "structure"):
        columns.facts[fact] = [getattr(network, fact) for network in networks] if fact in wanted else []
    if not wanted - columns.facts.keys():
        return columns
    plan = population.variant(run)
    packed = population.packed(run, seed, plan)
    if "weights" in wanted:
        columns.rows["weights", None] = population.rows(packed, "layers")
    if "parameters" in wanted:
        columns.rows["parameters", None] = population.rows(packed, "trainable")
    if run.inputs == "circle":
        _curve(run, population, plan, packed, batch, seed, columns)
    elif wanted & (NEED_FORWARD | {"labels"}):
        x, y = population.inputs(run, batch, seed, like(packed, run))
        columns.facts["labels"] = [y] * population.size
        if y is not None and wanted & NEED_LABELS:  # checked on the CPU: on a GPU this would wait for the queue
            check_labels((len(y), *networks[0].plan.output_shape), batch.part(run.part)[1])  # type: ignore[arg-type]
        streams = [item for item in items if item[1] is not None]
        if "block_gradients" in wanted:
            passing = [item for item in streams if item[0] != "layer_gradients"]
            streams = [item for item in streams if item[0] == "layer_gradients"]
            wanted = wanted - {name for name, _ in passing}
            between = population.watcher(plan, passing, seed)  # sends random signs back as it runs
            population.run(run, plan, packed, x, between)
            columns.rows |= between.collected()
        if wanted & NEED_FORWARD and not wanted & NEED_FORWARD - FORWARD_STREAMS:
            replay = population.replays.setdefault((replace(run, draw=0), tuple(streams)), Replay())
            pieces = replay(partial(_in_passing, population, run, plan, streams), packed, x)
            columns.rows |= {item: Rows(population.size, own) for item, own in pieces.items()}
            return columns
        watcher = population.watcher(plan, streams)
        if wanted & KERNELS:
            with own_stream(population.device):
                _forward(population, run, plan, packed, x, y, wanted, watcher, columns)
        elif wanted & NEED_FORWARD:
            _forward(population, run, plan, packed, x, y, wanted, watcher, columns)
        columns.rows |= watcher.collected()
    return columns


def _in_passing(
    population: Population, run: Pass, plan: Plan, items: list[Item], packed: Mapping[str, Tensor], x: Tensor
) -> WatcherOfMany:
    watcher = population.watcher(plan, items)
    population.run(run, plan, packed, x, watcher)
    return watcher


def _curve(
    run: Pass,
    population: Population,
    plan: Plan,
    packed: Mapping[str, Tensor],
    batch: Batch,
    seed: int,
    columns: ResultColumns,
) -> None:
    streams = pass_curve(run, batch, seed, like(packed, run))
    x, v, a = (side_by_side(stream, population.size) for stream in streams)
    with torch.no_grad():
        jets = jet_of(plan, packed, (x, v, a))
    for name, stream in zip(("logits", "velocity", "acceleration"), jets, strict=True):
        columns.tensors[name] = population.by_network(stream)


def _forward(
    population: Population,
    run: Pass,
    plan: Plan,
    packed: dict[str, Tensor],
    x: Tensor,
    y: Tensor | None,
    wanted: set[str],
    watcher: WatcherOfMany,
    columns: ResultColumns,
) -> None:
    """Runs all networks forward, and computes each requested gradient once."""
    everything = bool(wanted & NEED_GRAPH & OF_TRAINABLE)
    layers = list(plan.layer_weights)
    trainable = [name for name, param in plan.weights.items() if param.trainable]
    graph = bool(wanted & NEED_GRAPH)
    followed = (trainable if everything else layers) if graph else ()
    of_inputs = "input_gradients" in wanted
    tape = population.recorded(run, plan, packed, x, followed, of_inputs, watcher)
    logits = population.by_network(tape.output)  # [P, B, K]
    columns.tensors["logits"] = logits

    def back(of: Callable[[Tensor], Tensor], names: Sequence[str], seen: Seen | None = None) -> dict[str, Tensor]:
        """Returns by name the gradients of a sum over networks, each term a function of its own logits [B, P*K]."""
        with torch.enable_grad():
            joint = tape.output.detach().requires_grad_()
            (start,) = torch.autograd.grad(of(joint), [joint])
        return tape.gradients(start, names, seen)

    if of_inputs:

        def responses(of: Callable[[Tensor], Tensor]) -> Tensor:
            gradient = back(of, [INPUT]).get(INPUT)
            return population.by_network(side_by_side(x * 0, population.size) if gradient is None else gradient)

        def signed(signs: Tensor) -> Tensor:
            return responses(lambda joint: (population.by_network(joint) * signs).sum())

        columns.tensors["input_gradients"] = own = responses(torch.sum)
        columns.late = partial(_refuse_rounding, signed, HostCopy(are_faint(own, x, logits)))
    if y is not None and wanted & NEED_LABELS:
        names = list(dict.fromkeys([*trainable, *layers])) if everything else layers
        of_loss = _of_loss(population, packed, names, logits, y, wanted, columns, watcher, back)
        if "hessian_gradients" in wanted:
            along = {name: of_loss[name] for name in layers}
            if isinstance(tape, BlockRun) and tape.has_curvature():
                loss = partial(_joint_loss, population, y)
                second = _filled(tape.curvature(loss, along), packed, layers)
            else:
                second = _curvature_along(population, plan, packed, x, y, layers)
            columns.rows["hessian_gradients", None] = population.rows(second, "layers")
    if "log_gradients" in wanted:
        by_name = back(lambda joint: log_sums(population.by_network(joint)).sum(), layers)
        columns.rows["log_gradients", None] = population.rows(_filled(by_name, packed, layers), "layers")
    for kind in wanted & KERNELS:
        columns.tensors[kind] = tangent_kernels(kind, y, tape, packed, trainable, population)


def _refuse_rounding(signed: Signed, seen: HostCopy, columns: ResultColumns) -> None:
    """Launches the comparison of faint responses, if there are some; its result is read later."""
    faint = seen.wait()
    if faint.any():
        own, logits = columns.tensors["input_gradients"], columns.tensors["logits"]
        rounding = faint_and_rounding(faint.to(own.device), own, logits, signed)
        columns.whys["input_gradients"] = partial(_unfelt, rounding)


def _unfelt(rounding: Tensor, _: ResultColumns) -> dict[int, Exception]:
    return dict.fromkeys(rounding.nonzero().flatten().tolist(), DegenerateError(UNFELT))


def _of_loss(
    population: Population,
    packed: Mapping[str, Tensor],
    names: list[str],
    logits: Tensor,
    y: Tensor,
    wanted: set[str],
    columns: ResultColumns,
    watcher: WatcherOfMany,
    back: Callable[..., dict[str, Tensor]],
) -> dict[str, Tensor]:
    """Stores the losses and their gradients, and returns the gradients by name."""
    columns.tensors["loss"] = _losses(logits, y)
    if not wanted & LOSS_GRADIENTS:
        return {}
    by_name = back(partial(_joint_loss, population, y), names, watcher.arrived)
    gradients = _filled(by_name, packed, names)
    if "parameter_gradients" in wanted:
        columns.rows["parameter_gradients", None] = population.rows(gradients, "trainable")
    if wanted & LAYER_LOSS_GRADIENTS:
        columns.rows["gradients", None] = population.rows(gradients, "layers")
        columns.whys |= dict.fromkeys(LAYER_LOSS_GRADIENTS, _dead)
    return gradients


def _joint_loss(population: Population, y: Tensor, joint: Tensor) -> Tensor:
    """Returns the sum of the networks' losses, from logits [B, P*K]."""
    return _losses(population.by_network(joint), y).sum()


def _dead(columns: ResultColumns) -> dict[int, Exception]:
    """Returns the networks whose layers get no gradient, with the reason."""
    felt = columns.of_layers(_absolute_sum, [(columns, ("gradients", None))]) or ()
    return {p: DegenerateError(DEAD) for p, own in enumerate(felt) if not own.any()}


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """Returns the loss of each network [P], from logits [P, B, K]."""
    return label_loss(logits.flatten(0, 1), y.repeat(len(logits))).view(len(logits), -1).mean(1)


def _curvature_along(
    population: Population,
    plan: Plan,
    packed: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    layers: list[str],
) -> dict[str, Tensor]:
    """Returns the Hessians' products with the gradients, by differentiating the graph of the whole run twice."""
    inputs = side_by_side(x, population.size)
    own = dict(packed) | {name: packed[name].detach().requires_grad_() for name in layers}
    leaves = [own[name] for name in layers]
    with torch.enable_grad():
        loss = _joint_loss(population, y, execute(plan, own, (inputs,)))
    first = gradients(loss, leaves, create_graph=True)
    return dict(zip(layers, product(first, leaves), strict=True))


def _filled(by_name: Mapping[str, Tensor], packed: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """Returns the gradients by name, with zeros for parameters that nothing depends on."""
    return {name: by_name[name] if name in by_name else torch.zeros_like(packed[name]) for name in names}


@in_lists(lambda gradients: foreach.norm(gradients, 1))
def _absolute_sum(gradient: Tensor) -> Tensor:
    """Returns a sum that is zero only if every entry is: squares of small numbers could vanish."""
    return gradient.abs().sum()
