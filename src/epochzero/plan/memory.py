"""Memory of a network from its plan: what any runtime has to hold to predict one sample.

    weights        all parameters and buffers
    activations    max over operations of the input and all values alive when it ends

in numbers of `width` bytes, 4 in single precision. An operation is a call of a torch function, so an op may be several.
Each kind of op is run once for its shapes alone, on torch's meta device; what remains is to follow which values are
alive. What a kernel allocates and frees while it runs comes on top and depends on the kernel. A runtime that merges
layers, or an order that frees values sooner, may need less.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from epochzero.plan.ops.base import Op
from epochzero.plan.ops.embedding import Embedding
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.plan import Plan
from epochzero.types import WIDTH, Footprint, Shape


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
        with self.storages:
            out = func(*args, **(kwargs or {}))
        self.peak = max(self.peak, self.storages.bytes)
        return out


def footprint(plan: Plan) -> Footprint:
    """The memory of a plan."""
    plan = plan.trunk
    nodes, weights = plan.nodes, plan.weights
    holders: Counter[int] = Counter()
    """values that share a storage, by the node that made it"""
    owner = list(range(len(nodes)))
    alive = peak = sum(WIDTH * math.prod(nodes[i].shape) for i in plan.inputs)
    holders.update(dict.fromkeys(plan.inputs, 2))  # held by whoever called the network, too
    for i, node in enumerate(nodes):
        if not node.inputs:
            continue
        shapes = tuple([nodes[j].shape for j in node.inputs])
        extra, own, shares = _cost(node.op, shapes, tuple([weights[name].shape for name in node.params]))
        peak = max(peak, alive + extra)
        owner[i] = i if shares is None else owner[node.inputs[shares]]
        holders[owner[i]] += 1
        alive += own
        for j in plan.last_uses[i]:
            holders[owner[j]] -= 1
            if not holders[owner[j]]:
                alive -= WIDTH * math.prod(nodes[owner[j]].shape)
    return Footprint(WIDTH * sum(param.numel for param in weights.values()), peak)


@lru_cache(maxsize=50_000)
def _cost(op: Op, shapes: tuple[Shape, ...], params: tuple[Shape, ...]) -> tuple[int, int, int | None]:
    """Bytes beyond the inputs while the op runs and after it, and the input whose storage its output is."""
    op = replace(op, statistics="running") if isinstance(op, BatchNorm) else op
    kind = torch.long if op.looks_up or isinstance(op, Embedding) else torch.float32
    x = [torch.empty(1, *shape, device="meta", dtype=kind) for shape in shapes]
    live = Live([*x, *(own := [torch.empty(shape, device="meta") for shape in params])])
    before = live.storages.bytes
    with torch.no_grad(), live:
        y = op.run(tuple(x), tuple(own))
    storages = [one.untyped_storage()._cdata for one in x]
    storage = y.untyped_storage()
    shares = storages.index(storage._cdata) if storage._cdata in storages else None
    return live.peak - before, 0 if shares is not None else storage.nbytes(), shares
