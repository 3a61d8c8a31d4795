"""Feeds what proxies read layer by layer, as the network runs and as gradients arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from epochzero.engine.failure import PassFailedError
from epochzero.engine.passes import Layer

Item = tuple[str, Callable[..., Any] | None]
"""A read, and for a stream the function that is mapped over it."""


class Watcher:
    """Collects the streams of one pass."""

    def __init__(self, streams: Mapping[Item, list[Any]]) -> None:
        self.streams = streams
        self.blocks = any(stream == "blocks" for stream, _ in streams)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, layer: Layer) -> None:
        for (stream, function), collected in self.streams.items():
            assert function is not None
            if layer.kind == "block":
                if stream == "blocks" and layer.name and "." not in layer.name:
                    collected.append(_quietly(function, layer.output))
            elif stream == "layers":
                collected.append(_quietly(function, layer.output))
            elif stream == "whole_layers":
                collected.append(_quietly(function, layer))
            elif stream == "relus" and layer.op == "relu":
                collected.append(_quietly(function, layer.inputs[0]))
            elif stream == "layer_gradients" and layer.weight is not None and layer.output.requires_grad:
                collected.append(None)
                self._await_gradient(layer, function, collected, len(collected) - 1)

    def _await_gradient(self, layer: Layer, function: Callable[..., Any], collected: list[Any], place: int) -> None:
        version = layer.output._version

        def arrived(gradient: Tensor) -> None:
            if layer.output._version != version:
                raise PassFailedError(f"the output of {layer.name} is changed in place after the layer has run")
            collected[place] = _quietly(function, layer, gradient)

        self._hooks.append(layer.output.register_hook(arrived))  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Take the hooks off the graph, so that no later gradient is taken for the loss's."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _quietly(function: Callable[..., Any], *given: Any) -> Any:
    """A function of detached tensors, off the graph."""
    with torch.no_grad():
        return function(*(value.detach() if isinstance(value, Tensor) else value for value in given))
