"""The structure of a module, from one run: each tensor carries the paths that lead to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from epochzero.engine.passes import Layer
from epochzero.engine.structure import WEIGHTED, Paths, PlacedLayer, joined


class Lineage(TorchFunctionMode):
    """A function mode that follows paths from the input through every call; entered around the run."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.layers: list[PlacedLayer] = []
        self._known: dict[int, tuple[Tensor, Paths]] = {id(x): (x, Paths(0, 0))}
        """by identity, with the tensor, whose identity is free for others once it is gone"""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        own = joined(map(self.of, _tensors((args, dict(kwargs or {})))))
        returned = func(*args, **(kwargs or {}))
        for tensor in _tensors(args[0] if func.__name__ == "__setitem__" else returned):
            self._set(tensor, own)
        return returned

    def of(self, tensor: Tensor) -> Paths | None:
        """Returns the paths that lead to a tensor."""
        known = self._known.get(id(tensor))
        return None if known is None else known[1]

    def watch(self, layer: Layer) -> None:
        """Receives each layer after it has run."""
        own = self.of(layer.output)
        if layer.kind == "zero":
            own = None
        elif own is not None and layer.kind in WEIGHTED:
            own = Paths(own.shortest + 1, own.longest + 1)
        self._set(layer.output, own)
        self.layers.append(PlacedLayer(layer.kind, tuple(layer.output.shape[1:]), own))

    def _set(self, tensor: Tensor, paths: Paths | None) -> None:
        if paths is None:
            self._known.pop(id(tensor), None)
        else:
            self._known[id(tensor)] = tensor, paths


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
