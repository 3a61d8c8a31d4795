"""Running the passes of one network, each once, for all the proxies that asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine.circle import circle
from epochzero.engine.network import Handle, Network
from epochzero.engine.passes import NEED_LABELS, Layer, Need, Pass
from epochzero.engine.trace import Trace
from epochzero.errors import DataError

Item = tuple[str, Callable[..., Any] | None]
"""A read, and for a stream the function that is mapped over it."""

NEED_GRAPH = frozenset({"gradients", "hessian_gradients", "layer_gradients", "log_gradients", "input_gradients"})
NEED_FORWARD = NEED_GRAPH | {"layers", "relus", "logits", "loss"}
CHANNELS_LAST_FROM = 8
"""the batch size from which convolutions on the CPU run faster in channels-last form"""


class PassFailedError(Exception):
    """A pass, or one read of it, could not be had. The message becomes `Score.why` of the proxies that need it."""


def merged(needs: Iterable[Need]) -> dict[Pass, list[Item]]:
    """The distinct passes that these needs ask for, each with everything that is read of it."""
    passes: dict[Pass, dict[Item, None]] = {}
    for run, reads in needs:
        passes.setdefault(run, {}).update(dict.fromkeys(reads.items()))
    return {run: list(items) for run, items in passes.items()}


def trace(need: Need, results: Mapping[Item, Any]) -> Trace:
    """What one need gets of its pass; PassFailedError where a read of it could not be had."""
    reads = {item[0]: results[item] for item in need.reads.items()}
    for value in reads.values():
        if isinstance(value, PassFailedError):
            raise value
    return Trace(reads)


def run_pass(run: Pass, items: list[Item], network: Network, batch: Batch, seed: int) -> dict[Item, Any]:
    """Run a pass and collect what is read of it."""
    wanted = {name for name, _ in items}
    results: dict[str, Any] = {}
    weights = _weights(network, run)
    results["weights"] = [weights[name] for name in network.layer_weights] if "weights" in wanted else None
    if "params" in wanted:
        results["params"] = network.params
    if "flops" in wanted:
        results["flops"] = network.flops
    streams: dict[Item, list[Any]] = {item: [] for item in items if item[1] is not None}
    if run.inputs == "circle" and wanted & {"velocity", "acceleration", "logits"}:
        results |= _run_curve(run, network, weights, batch, seed)
    elif wanted & (NEED_FORWARD | {"network"}):
        x, y = _inputs(run, batch, weights)
        if y is None:
            missing = PassFailedError(f"needs labels, and there are none in this data ({batch.about})")
            results |= dict.fromkeys(wanted & NEED_LABELS, missing)
            streams = {item: found for item, found in streams.items() if item[0] not in NEED_LABELS}
            wanted -= NEED_LABELS
        if "network" in wanted:
            results["network"] = Handle(network, weights, x, y, seed, run.norm)
        if wanted & NEED_FORWARD:
            results |= _run_forward(run, network, weights, x, y, wanted, streams)
    return {item: streams[item] if item in streams else results[item[0]] for item in items}


def _weights(network: Network, run: Pass) -> dict[str, Tensor]:
    dtype = getattr(torch, run.dtype)
    weights = {name: w.detach().to(dtype) for name, w in network.weights.items()}
    return {name: w.abs() for name, w in weights.items()} if run.weights == "absolute" else weights


def _inputs(run: Pass, batch: Batch, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """The pass's inputs and labels, where the weights are and as precise as they are."""
    like = next(iter(weights.values()), torch.empty(0))
    if run.inputs == "ones":
        return torch.ones(1, *batch.input_shape, dtype=like.dtype, device=like.device), None
    try:
        x, y = batch.part(run.part)
    except DataError as error:
        raise PassFailedError(str(error)) from None
    if run.only is not None:
        if run.only[1] > len(x):
            raise PassFailedError(f"needs {run.only[1]} samples, and a part of this data has {len(x)}")
        x, y = x[slice(*run.only)], None if y is None else y[slice(*run.only)]
    x = x.to(like.device, like.dtype)
    if x.dim() == 4 and len(x) >= CHANNELS_LAST_FROM and x.device.type == "cpu":
        x = x.contiguous(memory_format=torch.channels_last)
    return x, None if y is None else y.to(like.device)


def _run_curve(
    run: Pass, network: Network, weights: Mapping[str, Tensor], batch: Batch, seed: int
) -> dict[str, Tensor]:
    like = next(iter(weights.values()), torch.empty(0))
    start = circle(batch.input_shape, run.points, run.radius, seed, run.draw)
    x, v, a = (stream.to(like.device, like.dtype) for stream in start)
    with torch.no_grad():
        logits, velocity, acceleration = network.jet((x, v, a), weights, run.norm)
    return {"logits": logits, "velocity": velocity, "acceleration": acceleration}


def _run_forward(
    run: Pass,
    network: Network,
    weights: dict[str, Tensor],
    x: Tensor,
    y: Tensor | None,
    wanted: set[str],
    streams: Mapping[Item, list[Any]],
) -> dict[str, Any]:
    """The forward run, and every gradient that is wanted of it, each once."""
    graph = bool(wanted & NEED_GRAPH)
    if graph:
        weights = weights | {name: weights[name].detach().requires_grad_() for name in network.layer_weights}
    if "input_gradients" in wanted:
        x = x.detach().requires_grad_()
    leaves = [weights[name] for name in network.layer_weights]
    watcher = _Watcher(streams)
    try:
        with torch.set_grad_enabled(graph):
            logits = network.forward(x, weights, run.norm, watcher if streams else None)
        if logits.dim() < 2 or len(logits) != len(x):
            raise PassFailedError(f"the output should be [batch, classes], and is {list(logits.shape)}")
        results: dict[str, Any] = {"logits": logits.detach()}
        if wanted & NEED_LABELS:
            assert y is not None
            loss = F.cross_entropy(logits, y)
            results["loss"] = loss.detach()
            twice = "hessian_gradients" in wanted
            if wanted & {"gradients", "hessian_gradients", "layer_gradients"}:
                again = twice or "input_gradients" in wanted
                gradients = _gradients(loss, leaves, create_graph=twice, retain_graph=again)
                results["gradients"] = [g.detach() for g in gradients]
                watcher.release()
    finally:
        watcher.release()
    if "input_gradients" in wanted:
        again = "hessian_gradients" in wanted
        results["input_gradients"] = _gradients(logits.sum(), [x], retain_graph=again)[0]
    if "hessian_gradients" in wanted:
        along = sum((g.detach() * g).sum() for g in gradients)
        assert isinstance(along, Tensor)
        results["hessian_gradients"] = _gradients(along, leaves)
    if "log_gradients" in wanted:
        results["log_gradients"] = _gradients(logits.sum().log(), leaves)
    return results


def _gradients(
    of: Tensor, leaves: list[Tensor], create_graph: bool = False, retain_graph: bool = False
) -> list[Tensor]:
    """Gradients for each leaf, zeros where nothing depends on it."""
    if not of.requires_grad or not leaves:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(
        of, leaves, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
    )
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


class _Watcher:
    """Feeds the streams as layers run, and as their gradients arrive."""

    def __init__(self, streams: Mapping[Item, list[Any]]) -> None:
        self.streams = streams
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, layer: Layer) -> None:
        for (stream, function), collected in self.streams.items():
            assert function is not None
            if stream == "layers":
                collected.append(_quietly(function, layer.output))
            elif stream == "relus" and layer.op == "relu":
                collected.append(_quietly(function, layer.inputs[0]))
            elif stream == "layer_gradients" and layer.weight is not None and layer.output.requires_grad:
                collected.append(None)
                self._watch_gradient(layer, function, collected, len(collected) - 1)

    def _watch_gradient(self, layer: Layer, function: Callable[..., Any], collected: list[Any], place: int) -> None:
        version = layer.output._version

        def arrived(gradient: Tensor) -> None:
            if layer.output._version != version:
                raise PassFailedError(f"the output of {layer.name} is changed in place after the layer has run")
            collected[place] = _quietly(function, layer, gradient)

        self.hooks.append(layer.output.register_hook(arrived))  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Take the hooks off the graph, so that no later gradient is taken for the loss's."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()


def _quietly(function: Callable[..., Any], *given: Any) -> Any:
    """A function of detached tensors, off the graph."""
    with torch.no_grad():
        return function(*(value.detach() if isinstance(value, Tensor) else value for value in given))
