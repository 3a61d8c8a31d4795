"""Memory of a network: of a plan from the plan, of a module from one run, for its shapes alone if it needs no values.

An operation of a module is a call of a torch function, so that fused attention keeps no matrix and a recurrent layer
none of its steps; `nn.MultiheadAttention` is several. `benchmarks/peak_memory.py` compares with torch's allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epochzero.engine.failure import PassFailedError
from epochzero.engine.modules.decompose import opened
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.network import Network, PlanNetwork
from epochzero.plan.memory import Live, footprint
from epochzero.types import Footprint

if TYPE_CHECKING:
    from epochzero.data import Batch


class LiveModules(Live):
    """The same, with attention opened."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.__name__ == "multi_head_attention_forward" and (
            call := opened(func.__name__, args, dict(kwargs or {}))
        ):
            with self:
                return call()
        return super().__torch_function__(func, types, args, kwargs)


def footprint_of(network: Network, batch: Batch) -> Footprint:
    """The memory that one sample takes; PassFailedError for a network that cannot run."""
    if isinstance(network, PlanNetwork):
        return footprint(network.plan)
    assert isinstance(network, ModuleNetwork)

    def follow(x: Tensor, weights: Mapping[str, Tensor]) -> Footprint:
        x = x.clone()  # whose storage holds other samples too
        live = LiveModules([x, *weights.values()])
        held = live.peak - x.untyped_storage().nbytes()
        with torch.no_grad():
            network.untouched(x, weights, live)
        return Footprint(held, live.peak - held)

    return network.one_sample(follow)


def peak_bytes(network: Network, batch: Batch) -> int | None:
    """Weights and activations of one sample; None for a network that cannot run."""
    try:
        return sum(footprint_of(network, batch))
    except PassFailedError:
        return None
