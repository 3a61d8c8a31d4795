"""The view of one proxy of one pass of one network, and functions of it that run for many networks at once.

A network may be a member of a population. `each_layer` and `of_network` then run a proxy's arithmetic for all members
when the first asks for it; so the functions that they take must be pure and total, and defined at the top of a file (a
new function for each call would be evaluated for the whole population each time).
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
    from epochzero.engine.structure import Structure


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
    structure: Structure
    layers: list[Any]
    responses: list[Any]
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
    """The trace of a member of a population; its reads are split off when they are asked for."""

    def __init__(self, columns: ResultColumns, network: int, reads: Mapping[str, Callable[..., Any] | None]) -> None:
        self.columns, self.at, self.reads = columns, network, reads

    def __getattr__(self, name: str) -> Any:
        if name not in self.reads:
            return super().__getattr__(name)
        self.__dict__[name] = value = self.columns.read((name, self.reads[name]), self.at)
        return value

    def sources(self, reads: Sequence[str]) -> list[tuple[ResultColumns, Any]]:
        return [(self.columns, (name, self.reads[name])) for name in reads]


PassResult = ResultColumns | Sequence[Mapping[Any, Any]]
"""the reads of a pass of some networks, which ran as a population or one by one"""


def trace(need: Need, result: PassResult, network: int) -> Trace:
    """Returns the trace of one network for a need."""
    if isinstance(result, ResultColumns):
        return PopulationTrace(result, network, need.reads)
    return Trace({item[0]: result[network][item] for item in need.reads.items()})


def refusals(need: Need, result: PassResult) -> dict[int, Exception]:
    """Returns the networks for which a needed read has no value, with the reasons."""
    if isinstance(result, ResultColumns):
        return result.refusals(need.reads.items())
    values = {p: [own[item] for item in need.reads.items()] for p, own in enumerate(result)}
    whys = {p: next((value for value in own if isinstance(value, Exception)), None) for p, own in values.items()}
    return {p: why for p, why in whys.items() if why is not None}


def each_layer(function: Callable[..., Tensor], traces: Sequence[Trace], *reads: str) -> Tensor:
    """Returns [L], `function` of each layer's values: the reads of the first trace, then those of the next.

    Layers without a value are left out.
    """
    in_populations = [trace for trace in traces if isinstance(trace, PopulationTrace)]
    if len(in_populations) == len(traces):
        columns, at = in_populations[0].columns, in_populations[0].at
        values = columns.of_layers(function, [source for trace in in_populations for source in trace.sources(reads)])
        if values is not None:
            return values[at]
    layers = zip(*(getattr(trace, name) for trace in traces for name in reads), strict=True)
    return of_each([layer for layer in layers if layer[0] is not None], function)


def of_network(function: Callable[..., Any], trace: Trace, *reads: str) -> Any:
    """Returns `function` of the reads, a tensor or a tuple of tensors.

    A list of layers' values is summed; the result is None if the list is empty.
    """
    if isinstance(trace, PopulationTrace):
        results = trace.columns.of_networks(function, trace.sources(reads))
        if results is not None:
            return results[trace.at]
    values = [_summed(getattr(trace, name)) for name in reads]
    return None if any(value is None for value in values) else function(*values)


def _summed(value: Any) -> Any:
    """Sums a list of layers' values, without the layers that have none; None if no layer has one."""
    if not isinstance(value, list):
        return value
    there = [one for one in value if one is not None]
    return torch.stack(there).sum(0) if there else None
