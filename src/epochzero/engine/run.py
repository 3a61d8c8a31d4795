"""Running the passes of one network, each once, for all the proxies that asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine.failure import PassFailedError, blaming, or_why
from epochzero.engine.inputs import like, of_movable, pass_curve, pass_inputs, pass_weights
from epochzero.engine.kernels import rows_of, tangent_kernel, tangent_kernel_apart
from epochzero.engine.loss import check_labels, label_loss
from epochzero.engine.network import Handle, Network
from epochzero.engine.passes import KERNELS, NEED_LABELS, Need, Pass
from epochzero.engine.trace import Trace
from epochzero.engine.watch import Item, Streams, Watcher
from epochzero.errors import DegenerateError

OF_LOSS = frozenset({"gradients", "parameter_gradients", "hessian_gradients", "layer_gradients"})
OF_LOSS_AND_LAYERS = OF_LOSS - {"parameter_gradients"}
DEAD = "no gradient of the loss reaches a conv or linear layer"
OF_LAYERS = frozenset({"weights", "gradients", "hessian_gradients", "layer_gradients", "log_gradients"})
NEED_GRAPH = OF_LOSS | KERNELS | {"log_gradients", "input_gradients"}
NEED_FORWARD = NEED_GRAPH | {"layers", "blocks", "relus", "logits", "loss"}


def merged(needs: Iterable[Need]) -> dict[Pass, list[Item]]:
    """The distinct passes that these needs ask for, each with everything that is read of it."""
    passes: dict[Pass, dict[Item, None]] = {}
    for run, reads in needs:
        passes.setdefault(run, {}).update(dict.fromkeys(reads.items()))
    return {run: list(items) for run, items in passes.items()}


def trace(need: Need, results: Mapping[Item, Any]) -> Trace:
    """What one need gets of its pass. Raises what stood in the way of a read."""
    reads = {item[0]: results[item] for item in need.reads.items()}
    for value in reads.values():
        if isinstance(value, Exception):
            raise value
    return Trace(reads)


def run_pass(run: Pass, items: list[Item], network: Network, batch: Batch, seed: int) -> dict[Item, Any]:
    """Run a pass and collect what is read of it; a read that cannot be had holds the reason instead."""
    wanted = {name for name, _ in items}
    facts = {"seed": lambda: seed, "params": lambda: network.params, "flops": lambda: network.flops}
    results: dict[Any, Any] = {name: or_why(find) for name, find in facts.items() if name in wanted}
    rest = wanted - results.keys()
    if rest:
        ran = or_why(lambda: _run(run, items, rest, network, batch, seed))
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
    if "network" in wanted:
        results["network"] = Handle(network, weights, x, y, seed, run.norm)
    if wanted & NEED_FORWARD:
        streams: Streams = {item: [] for item in items if item[1] is not None and item[0] in wanted}
        results |= _run_forward(run, network, weights, x, y, wanted, streams) | streams
    if "input_gradients" in results:
        results["input_gradients"] = or_why(lambda: of_movable(results["input_gradients"], batch))
    return results


def _run_curve(
    run: Pass, network: Network, weights: Mapping[str, Tensor], batch: Batch, seed: int
) -> dict[str, Tensor]:
    curve = pass_curve(run, batch, seed, like(weights, run))
    with torch.no_grad():
        logits, velocity, acceleration = network.jet(curve, weights, run.norm)
    _check(logits, run.points)
    return {"logits": logits, "velocity": velocity.flatten(1), "acceleration": acceleration.flatten(1)}


def _check(logits: Tensor, samples: int) -> None:
    if logits.dim() < 2 or len(logits) != samples or not logits.is_floating_point():
        kind = str(logits.dtype).removeprefix("torch.")
        raise PassFailedError(f"the output should be [{samples}, classes], and is {list(logits.shape)} of {kind}")


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    check_labels(logits, y)
    return label_loss(logits, y, "mean")


def _run_forward(
    run: Pass,
    network: Network,
    weights: dict[str, Tensor],
    x: Tensor,
    y: Tensor | None,
    wanted: set[str],
    streams: Streams,
) -> dict[str, Any]:
    """The forward run, and every gradient that is wanted of it, each once."""
    graph = bool(wanted & NEED_GRAPH)
    everything = bool(wanted & (KERNELS | {"parameter_gradients"}))
    if graph:
        followed = (*network.trainable, *network.layer_weights) if everything else network.layer_weights
        weights = weights | {name: weights[name].detach().requires_grad_() for name in followed}
    if "input_gradients" in wanted:
        x = x.detach().requires_grad_()
    watcher = Watcher(streams)
    try:
        with torch.set_grad_enabled(graph):
            logits = network.forward(x, weights, run.norm, watcher if streams else None, watcher.blocks)
        _check(logits, len(x))
        results: dict[str, Any] = {"logits": logits.detach()}
        if y is not None and wanted & NEED_LABELS:
            found = or_why(lambda: _of_loss(_loss(logits, y), network, weights, wanted, watcher))
            if isinstance(found, Exception):
                found = dict.fromkeys(wanted & NEED_LABELS, found)
                wanted = wanted - NEED_LABELS
            results |= found
    finally:
        watcher.release()
    leaves = [weights[name] for name in network.layer_weights]
    if "log_gradients" in wanted:
        results["log_gradients"] = or_why(lambda: _gradients(logits.sum().log(), leaves, retain_graph=True))
    for kind in wanted & KERNELS:
        results[kind] = _kernel(kind, run, network, weights, x, y, logits)
    if "input_gradients" in wanted:
        results["input_gradients"] = or_why(lambda: _gradients(logits.sum(), [x])[0])
    return results


def _kernel(
    kind: str, run: Pass, network: Network, weights: dict[str, Tensor], x: Tensor, y: Tensor | None, logits: Tensor
) -> Tensor:
    leaves = [weights[name] for name in network.trainable]
    if network.mixes_samples(run.norm):
        return tangent_kernel(rows_of(kind, logits, y), leaves)

    def rows_of_sample(i: int) -> Tensor:
        with torch.enable_grad():
            alone = network.forward(x[i : i + 1], weights, run.norm)
        return rows_of(kind, alone, None if y is None else y[i : i + 1])

    return tangent_kernel_apart(rows_of_sample, len(x), leaves)


def _of_loss(
    loss: Tensor, network: Network, weights: Mapping[str, Tensor], wanted: set[str], watcher: Watcher
) -> dict[str, Any]:
    """The loss and its gradients; the graph is kept where something else is still wanted of it."""
    results: dict[str, Any] = {"loss": loss.detach()}
    if not wanted & OF_LOSS:
        return results
    twice, everything = "hessian_gradients" in wanted, "parameter_gradients" in wanted
    names = dict.fromkeys((*network.trainable, *network.layer_weights) if everything else network.layer_weights)
    again = twice or bool(wanted & (KERNELS | {"log_gradients", "input_gradients"}))
    found = _gradients(loss, [weights[name] for name in names], create_graph=twice, retain_graph=again)
    watcher.release()
    by_name = dict(zip(names, found, strict=True))
    if everything:
        results["parameter_gradients"] = [by_name[name].detach() for name in network.trainable]
    layers = [by_name[name] for name in network.layer_weights]
    if wanted & OF_LOSS_AND_LAYERS and _all_zero(layers):
        return results | dict.fromkeys(OF_LOSS_AND_LAYERS, DegenerateError(DEAD))
    results["gradients"] = [g.detach() for g in layers]
    if twice:
        along = torch.stack([(g.detach() * g).sum() for g in layers]).sum()
        leaves = [weights[name] for name in network.layer_weights]
        results["hessian_gradients"] = or_why(lambda: _gradients(along, leaves, retain_graph=again))
    return results


def _all_zero(tensors: list[Tensor]) -> bool:
    """Exactly: sums of absolute values, which do not vanish as sums of squares may."""
    return not torch.stack(torch._foreach_norm([t.detach() for t in tensors], 1)).any()


def _gradients(
    of: Tensor, leaves: list[Tensor], create_graph: bool = False, retain_graph: bool = False
) -> list[Tensor]:
    """Gradients for each leaf, zeros where nothing depends on it."""
    if not of.requires_grad or not leaves:
        return [torch.zeros_like(leaf) for leaf in leaves]
    with blaming("the backward pass"):
        found = torch.autograd.grad(
            of, leaves, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
        )
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]
