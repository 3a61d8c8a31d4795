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

from epochzero.engine.passes import Need
from epochzero.engine.population.columns import ResultColumns, of_each

if TYPE_CHECKING:
    from epochzero.engine.network import Handle


class Trace:
    """The reads that a proxy asked for, by name; see `epochzero.engine.reads` for what each one is."""

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


class PopulationTrace(Trace):
    """The trace of a network among others; what is read of it is taken apart when it is asked for."""

    def __init__(self, columns: ResultColumns, network: int, reads: Mapping[str, Callable[..., Any] | None]) -> None:
        self.columns, self.at, self.reads = columns, network, reads

    def __getattr__(self, name: str) -> Any:
        if name not in self.reads:
            return super().__getattr__(name)
        self.__dict__[name] = found = self.columns.read((name, self.reads[name]), self.at)
        return found

    def sources(self, reads: Sequence[str]) -> list[tuple[ResultColumns, Any]]:
        return [(self.columns, (name, self.reads[name])) for name in reads]


PassResult = ResultColumns | Sequence[Mapping[Any, Any]]
"""what is read of a pass of some networks, which ran side by side or each for itself"""


def trace(need: Need, found: PassResult, network: int) -> Trace:
    """What one need gets of its pass, of one of the networks."""
    if isinstance(found, ResultColumns):
        return PopulationTrace(found, network, need.reads)
    return Trace({item[0]: found[network][item] for item in need.reads.items()})


def refusals(need: Need, found: PassResult) -> dict[int, Exception]:
    """The networks for which not all that is needed can be had, and why."""
    if isinstance(found, ResultColumns):
        return found.refusals(need.reads.items())
    values = {p: [own[item] for item in need.reads.items()] for p, own in enumerate(found)}
    whys = {p: next((value for value in own if isinstance(value, Exception)), None) for p, own in values.items()}
    return {p: why for p, why in whys.items() if why is not None}


def each_layer(function: Callable[..., Tensor], traces: Sequence[Trace], *reads: str) -> Tensor:
    """[L] `function` of each layer's values: those that are read of the first trace, then those of the next.

    Layers for which there is nothing are left out.
    """
    in_populations = [trace for trace in traces if isinstance(trace, PopulationTrace)]
    if len(in_populations) == len(traces):
        columns, at = in_populations[0].columns, in_populations[0].at
        found = columns.of_layers(function, [source for trace in in_populations for source in trace.sources(reads)])
        if found is not None:
            return found[at]
    layers = zip(*(getattr(trace, name) for trace in traces for name in reads), strict=True)
    return of_each([layer for layer in layers if layer[0] is not None], function)


def of_network(function: Callable[..., Any], trace: Trace, *reads: str) -> Any:
    """`function` of what is read; a list of layers' values is summed, and None comes back where it is empty.

    It gives a tensor, or a tuple of some.
    """
    if isinstance(trace, PopulationTrace):
        found = trace.columns.of_networks(function, trace.sources(reads))
        if found is not None:
            return found[trace.at]
    values = [_summed(getattr(trace, name)) for name in reads]
    return None if any(value is None for value in values) else function(*values)


def _summed(value: Any) -> Any:
    """Over the layers that have one, where it is a list of theirs; None where none has."""
    if not isinstance(value, list):
        return value
    there = [one for one in value if one is not None]
    return torch.stack(there).sum(0) if there else None
