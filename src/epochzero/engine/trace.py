"""What one proxy gets to see of one pass of one network, and functions of it that many networks share.

A network may be one of a population that runs in lockstep. `each_layer` and `of_network` then run a proxy's arithmetic
for all of them at once, when the first asks; so the functions that they take must be pure and total, and defined at the
top of a file (a new function for each call would be found out anew each time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epochzero.engine.crowd import Crowd, of_each

if TYPE_CHECKING:
    from epochzero.engine.network import Handle


class Trace:
    """The reads that a proxy asked for, by name; see `epochzero.engine.passes` for what each one is."""

    weights: list[Tensor]
    gradients: list[Tensor]
    parameters: list[Tensor]
    parameter_gradients: list[Tensor]
    labels: Tensor
    kernel_loss: Tensor
    kernel_label: Tensor
    kernel_sum: Tensor
    kernel_outputs: Tensor
    hessian_gradients: list[Tensor]
    log_gradients: list[Tensor]
    input_gradients: Tensor
    logits: Tensor
    loss: Tensor
    velocity: Tensor
    acceleration: Tensor
    params: int
    seed: int
    flops: int
    layers: list[Any]
    blocks: list[Any]
    relus: list[Any]
    norms: list[Any]
    features: list[Any]
    layer_gradients: list[Any]
    block_gradients: list[Any]
    network: Handle

    def __init__(self, reads: dict[str, Any]) -> None:
        self.__dict__.update(reads)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this pass was not asked for '{name}': add it to the proxy's needs")


class TraceInCrowd(Trace):
    """The trace of a network among others; what is read of it is taken apart when it is asked for."""

    def __init__(self, crowd: Crowd, network: int, reads: Mapping[str, Callable[..., Any] | None]) -> None:
        super().__init__({"crowd": crowd, "at": network, "reads": reads})

    def __getattr__(self, name: str) -> Any:
        if name not in self.reads:
            return super().__getattr__(name)
        self.__dict__[name] = found = self.crowd.read((name, self.reads[name]), self.at)
        return found

    def sources(self, reads: Sequence[str]) -> list[tuple[Crowd, Any]]:
        return [(self.crowd, (name, self.reads[name])) for name in reads]


def each_layer(function: Callable[..., Tensor], traces: Sequence[Trace], *reads: str) -> Tensor:
    """[L] `function` of each layer's values: those that are read of the first trace, then those of the next.

    Layers for which there is nothing are left out.
    """
    first = traces[0]
    if isinstance(first, TraceInCrowd):
        sources = [source for trace in traces for source in trace.sources(reads)]
        found: Tensor | None = first.crowd.of_layers(function, sources, first.at)
        if found is not None:
            return found
    layers = zip(*(getattr(trace, name) for trace in traces for name in reads), strict=True)
    return of_each([layer for layer in layers if layer[0] is not None], function)


def of_network(function: Callable[..., Any], trace: Trace, *reads: str) -> Any:
    """`function` of what is read; a list of layers' values is summed, and None comes back where it is empty."""
    if isinstance(trace, TraceInCrowd):
        sources = trace.sources(reads)
        if any(item in crowd.rows and not len(crowd.rows[item].kept(trace.at)) for crowd, item in sources):
            return None
        if all(item not in crowd.rows or crowd.rows[item].stacked for crowd, item in sources):
            return trace.crowd.of_networks(function, sources, trace.at)
    values = [_summed(getattr(trace, name)) for name in reads]
    return None if any(value is None for value in values) else function(*values)


def _summed(value: Any) -> Any:
    """Over the layers that have one, where it is a list of theirs; None where none has."""
    if not isinstance(value, list):
        return value
    there = [one for one in value if one is not None]
    return torch.stack(there).sum(0) if there else None
