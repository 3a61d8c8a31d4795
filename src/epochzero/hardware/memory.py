"""Peak memory of a network, from one run for its shapes alone, on torch's meta device.

    peak = 4 bytes * weights + max over operations of the bytes of the input and of all activations alive when it ends

for one sample in single precision, without gradients: the tensors that any runtime has to hold. What a kernel
allocates and frees while it runs comes on top and depends on the kernel: torch's convolutions on a CPU copy input,
weights and output. An operation is a call of a torch function, so that fused attention keeps no matrix and a recurrent
layer none of its steps; `nn.MultiheadAttention` is several. `benchmarks/peak_memory.py` compares with torch's
allocator.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from epochzero.engine.failure import PassFailedError
from epochzero.engine.modules.decompose import opened
from epochzero.engine.network import Network, PlanNetwork

if TYPE_CHECKING:
    from epochzero.data import Batch


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows which storages are alive; those of `held` are, from first to last."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        own = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in held}
        self._tensors: Counter[int] = Counter(own.keys())
        self.bytes = sum(own.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._follow(tensor)
        return out

    def _follow(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._tensors[key]:
            self.bytes += size
        self._tensors[key] += 1
        weakref.finalize(tensor, self._dropped, key, size)

    def _dropped(self, key: int, size: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            self.bytes -= size


class Live(TorchFunctionMode):
    """Looks how many bytes are alive whenever an operation ends."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()
        self.storages = Storages(held)
        self.peak = self.storages.bytes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func.__name__ == "multi_head_attention_forward" and (call := opened(func.__name__, args, given)):
            with self:
                return call()
        with self.storages:
            out = func(*args, **given)
        self.peak = max(self.peak, self.storages.bytes)
        return out


def peak_bytes(network: Network, batch: Batch) -> int | None:
    """Returns the bytes for one sample; None for a network that cannot run without values."""
    if isinstance(network, PlanNetwork):
        weights = {name: torch.empty(w.shape, device="meta") for name, w in network.plan.weights.items()}
    else:
        weights = {name: (w.float() if w.is_floating_point() else w).to("meta") for name, w in network.weights.items()}
    x = batch.part(0)[0][:1].to("meta")
    live = Live([x, *weights.values()])
    try:
        with torch.no_grad():
            network.untouched(x, weights, live)
    except PassFailedError:
        return None
    return live.peak
