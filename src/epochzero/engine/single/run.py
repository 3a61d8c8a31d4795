"""Runs a pass of one network once, for all the proxies that need it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine import foreach
from epochzero.engine.failure import PassFailedError, or_why
from epochzero.engine.inputs import like, moves, of_movable, pass_curve, pass_inputs, pass_weights
from epochzero.engine.loss import LABEL, log_sums
from epochzero.engine.network import Handle, Network, PlanNetwork
from epochzero.engine.passes import Item, Pass
from epochzero.engine.reads import (
    FACTS,
    KERNELS,
    LAYER_LOSS_GRADIENTS,
    LOSS_GRADIENTS,
    NEED_FORWARD,
    NEED_GRAPH,
    NEED_LABELS,
    OF_CLASSES,
    OF_LAYERS,
    OF_TRAINABLE,
    PER_SAMPLE,
)
from epochzero.engine.single.gradients import gradients, product, product_apart
from epochzero.engine.single.kernels import rows_of, tangent_kernel, tangent_kernel_apart
from epochzero.engine.single.responses import UNFELT, are_rounding
from epochzero.engine.single.spill import spilling
from epochzero.engine.single.watch import Streams, Watcher
from epochzero.errors import DegenerateError

DEAD = "no gradient of the loss reaches a conv or linear layer"


def run_pass(run: Pass, items: list[Item], network: Network, batch: Batch, seed: int) -> dict[Item, Any]:
    """Runs a pass and returns its reads; a read without a value is the reason why."""
    wanted = {name for name, _ in items}
    results: dict[Any, Any] = {name: or_why(partial(getattr, network, name)) for name in wanted & FACTS - {"seed"}}
    if "seed" in wanted:
        results["seed"] = seed
    if rest := wanted - results.keys():
        ran = or_why(partial(_run, run, items, rest, network, batch, seed))
        results |= dict.fromkeys(rest, ran) if isinstance(ran, Exception) else ran
    return {item: results.get(item[0], results.get(item)) for item in items}


def _run(run: Pass, items: list[Item], wanted: set[str], network: Network, batch: Batch, seed: int) -> dict[Any, Any]:
    if network.broken:
        raise PassFailedError(network.broken)
    if wanted & OF_LAYERS and network.hides:
        hidden = PassFailedError(network.hides)
        return _run(run, items, wanted - OF_LAYERS, network, batch, seed) | dict.fromkeys(wanted & OF_LAYERS, hidden)
    if wanted & OF_LAYERS and not network.layer_weights:
        none = DegenerateError("the network has no conv or linear layer")
        return _run(run, items, wanted - OF_LAYERS, network, batch, seed) | dict.fromkeys(wanted & OF_LAYERS, none)
    weights = pass_weights(network, run, seed)
    batch = network.embedded(batch) if moves(run, wanted) else batch
    results: dict[Any, Any] = {}
    if "weights" in wanted:
        results["weights"] = [weights[name] for name in network.layer_weights]
    if "parameters" in wanted:
        results["parameters"] = [weights[name] for name in network.trainable]
    if run.inputs == "circle":
        return results | _run_curve(run, network, weights, batch, seed)
    if not wanted & (NEED_FORWARD | {"network", "labels"}):
        return results
    x, y = pass_inputs(run, batch, seed, like(weights, run))
    results["labels"] = y
    if y is None:
        missing = PassFailedError(f"needs labels, and there are none in this data ({batch.about})")
        results |= dict.fromkeys(wanted & NEED_LABELS, missing)
        wanted = wanted - NEED_LABELS
    if batch.loss is not None and not batch.loss.classes:
        no_classes = PassFailedError(f"needs class labels, which the targets of the loss {batch.loss.name} are not")
        results |= dict.fromkeys(wanted & OF_CLASSES, no_classes)
        wanted = wanted - OF_CLASSES
    handle = Handle(network, weights, x, y, seed, run.norm, batch.loss or LABEL)
    if "network" in wanted:
        results["network"] = handle
    if wanted & NEED_FORWARD:
        streams: Streams = {item: [] for item in items if item[1] is not None and item[0] in wanted}
        watcher = Watcher(streams, seed, x.device)
        watcher.within = network.holds_blocks if watcher.blocks else ""
        watcher.copies = not isinstance(network, PlanNetwork)
        ran = _run_samples(handle, wanted, watcher)
        watcher.finish()
        results |= ran | streams
    if "input_gradients" in results:
        results["input_gradients"] = or_why(lambda: of_movable(results["input_gradients"], batch))
    return results


def _run_curve(
    run: Pass, network: Network, weights: Mapping[str, Tensor], batch: Batch, seed: int
) -> dict[str, Tensor]:
    curve = pass_curve(run, batch, seed, like(weights, run))
    with torch.no_grad():
        logits, velocity, acceleration = network.jet(curve, weights, run.norm)
    _check(logits, len(curve[0]))
    return {"logits": logits, "velocity": velocity.flatten(1), "acceleration": acceleration.flatten(1)}


def _check(logits: Tensor, samples: int) -> None:
    if logits.dim() < 2 or len(logits) != samples or not logits.is_floating_point():
        kind = str(logits.dtype).removeprefix("torch.")
        raise PassFailedError(f"the output should be [{samples}, classes], and is {list(logits.shape)} of {kind}")


def _run_samples(handle: Handle, wanted: set[str], watcher: Watcher) -> dict[str, Any]:
    """Runs the batch; then, if no layer mixes samples, a few at a time for the reads that need much memory."""
    apart = wanted & PER_SAMPLE
    if not apart or handle.network.mixes_samples(handle.norm):
        return _run_whole(handle, wanted, watcher)
    needed = {"logits", "gradients"} if "hessian_gradients" in apart else {"logits"}
    results = _run_whole(handle, wanted - apart | needed, watcher)
    for read in apart:
        results[read] = or_why(partial(_read_apart, read, handle, results))
    return results


def _run_whole(handle: Handle, wanted: set[str], watcher: Watcher) -> dict[str, Any]:
    """Runs the whole batch; maps that its graph keeps are stored in a file if they are too large for memory."""
    with spilling(handle.network, handle.weights.values(), handle.x) as spill:
        if spill is not None:
            watcher.remember = spill.remember
        return _run_forward(handle, wanted, watcher)


def _run_forward(handle: Handle, wanted: set[str], watcher: Watcher) -> dict[str, Any]:
    """Runs the network forward, and computes each requested gradient once."""
    network, weights, x, y, _, norm, loss = handle
    graph = bool(wanted & NEED_GRAPH)
    everything = bool(wanted & NEED_GRAPH & OF_TRAINABLE)
    if wanted & (NEED_GRAPH - {"block_gradients"}):
        followed = (*network.trainable, *network.layer_weights) if everything else network.layer_weights
        weights = {**weights, **{name: weights[name].detach().requires_grad_() for name in followed}}
    if wanted & {"input_gradients", "block_gradients"}:
        x = x.detach().requires_grad_()
    try:
        with torch.set_grad_enabled(graph):
            logits = network.forward(x, weights, norm, watcher if watcher.streams else None, watcher.blocks)
        watcher.ran()
        _check(logits, len(x))
        results: dict[str, Any] = {"logits": logits.detach()}
        if y is not None and wanted & NEED_LABELS:
            of_loss = or_why(lambda: _of_loss(loss.mean(logits, y), network, weights, wanted, watcher))
            if isinstance(of_loss, Exception):
                of_loss = dict.fromkeys(wanted & NEED_LABELS, of_loss)
                wanted = wanted - NEED_LABELS
            results |= of_loss
    finally:
        watcher.release()
    watcher.between_blocks()
    leaves = [weights[name] for name in network.layer_weights]
    if "log_gradients" in wanted:
        results["log_gradients"] = or_why(lambda: gradients(log_sums(logits[None]).sum(), leaves, retain_graph=True))
    for kind in wanted & KERNELS:
        results[kind] = tangent_kernel(rows_of(kind, logits, y, loss), [weights[name] for name in network.trainable])
    if "input_gradients" in wanted:
        results["input_gradients"] = or_why(lambda: _responses(logits, x))
    if callable(multiply := results.get("hessian_gradients")):
        results["hessian_gradients"] = or_why(multiply)
    return results


def _responses(logits: Tensor, x: Tensor) -> Tensor:
    """Returns the gradients of the summed logits for the inputs; raises a reason if they are only rounding."""

    def signed(signs: Tensor) -> Tensor:
        return gradients((logits * signs).sum(), [x], retain_graph=True)[0][None]

    (responses,) = gradients(logits.sum(), [x], retain_graph=True)
    if are_rounding(responses[None], x, logits.detach()[None], signed).item():
        raise DegenerateError(UNFELT)
    return responses


def _read_apart(read: str, handle: Handle, results: dict[str, Any]) -> Any:
    """Computes one read from the graphs of a few samples at a time; the graph of the batch is freed by now."""
    network, weights, x, y, _, norm, loss = handle
    second = read == "hessian_gradients"
    if second and isinstance(results["gradients"], Exception):
        raise results["gradients"]
    if y is not None and read in NEED_LABELS:
        loss.check(results["logits"], y)
    names = network.layer_weights if second else network.trainable
    own = {name: weights[name].detach().requires_grad_() for name in names}
    leaves = list(own.values())

    def forward(some: Tensor) -> Tensor:
        with torch.enable_grad():
            return network.forward(some, {**weights, **own}, norm)

    def rows_of_sample(i: int) -> Tensor:
        return rows_of(read, forward(x[i : i + 1]), None if y is None else y[i : i + 1], loss)

    if second:
        assert y is not None
        return product_apart(
            forward, x, lambda outputs, some: loss.each(outputs, y[some]), results["gradients"], leaves
        )
    return tangent_kernel_apart(rows_of(read, results["logits"], y, loss), rows_of_sample, len(x), leaves)


def _of_loss(
    loss: Tensor, network: Network, weights: Mapping[str, Tensor], wanted: set[str], watcher: Watcher
) -> dict[str, Any]:
    """Returns the loss and its gradients; the graph is kept if other reads still need it.

    The Hessian's product comes last. The graph of the gradients, which it needs, is made now if no other read comes in
    between, and otherwise only then: one more backward pass, but it does not share memory with the other reads.
    """
    results: dict[str, Any] = {"loss": loss.detach()}
    if not wanted & LOSS_GRADIENTS:
        return results
    twice, everything = "hessian_gradients" in wanted, "parameter_gradients" in wanted
    names = dict.fromkeys((*network.trainable, *network.layer_weights) if everything else network.layer_weights)
    between = bool(wanted & NEED_GRAPH - LOSS_GRADIENTS)
    of_names = [weights[name] for name in names]
    by_leaf = gradients(loss, of_names, create_graph=twice and not between, retain_graph=between)
    watcher.release()
    by_name = dict(zip(names, by_leaf, strict=True))
    if everything:
        results["parameter_gradients"] = [by_name[name].detach() for name in network.trainable]
    layers = [by_name[name] for name in network.layer_weights]
    if wanted & LAYER_LOSS_GRADIENTS and _all_zero(layers):
        return results | dict.fromkeys(LAYER_LOSS_GRADIENTS, DegenerateError(DEAD))
    results["gradients"] = [g.detach() for g in layers]
    if twice:
        leaves = [weights[name] for name in network.layer_weights]
        results["hessian_gradients"] = lambda: product(
            gradients(loss, leaves, create_graph=True) if between else layers, leaves
        )
    return results


def _all_zero(tensors: list[Tensor]) -> bool:
    """Returns True if every number is zero: sums of absolute values do not vanish as sums of squares may."""
    return not torch.stack(foreach.norm([t.detach() for t in tensors], 1)).any()
