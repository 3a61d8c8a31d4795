"""Feeds what proxies read layer by layer, as the network runs and as gradients arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from epochzero.engine.failure import REASONS, PassFailedError, blaming
from epochzero.engine.passes import Layer

Item = tuple[str, Callable[..., Any] | None]
"""A read, and for a stream the function that is mapped over it."""

Streams = dict[Item, list[Any] | Exception]
"""What each stream has given so far, or why it gives nothing."""


class Watcher:
    """Collects the streams of one pass; what fails, fails its own stream alone."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.blocks = any(stream == "blocks" for stream, _ in streams)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, layer: Layer) -> None:
        for item in self.streams:
            stream = item[0]
            if layer.kind == "block":
                if stream == "blocks" and layer.name and "." not in layer.name:
                    self._feed(item, self._place(item), layer.output)
            elif stream == "layers":
                self._feed(item, self._place(item), layer.output)
            elif stream == "relus" and layer.op == "relu":
                self._feed(item, self._place(item), layer.inputs[0])
            elif stream == "layer_gradients" and layer.weight is not None and layer.output.requires_grad:
                self._await_gradient(item, self._place(item), layer)

    def _place(self, item: Item) -> int:
        """Where in its stream the next value goes."""
        collected = self.streams[item]
        if isinstance(collected, Exception):
            return -1
        collected.append(None)
        return len(collected) - 1

    def _feed(self, item: Item, place: int, *given: Any) -> None:
        """What the stream's function makes of detached tensors, off the graph."""
        function, collected = item[1], self.streams[item]
        assert function is not None
        if isinstance(collected, Exception):
            return
        try:
            with torch.no_grad(), blaming("the proxy"):
                collected[place] = function(*(v.detach() if isinstance(v, Tensor) else v for v in given))
        except REASONS as reason:
            self.streams[item] = reason

    def _await_gradient(self, item: Item, place: int, layer: Layer) -> None:
        version = layer.output._version

        def arrived(gradient: Tensor) -> None:
            if layer.output._version != version:
                why = f"the output of {layer.name} is changed in place after the layer has run"
                self.streams[item] = PassFailedError(why)
            self._feed(item, place, layer, gradient)

        self._hooks.append(layer.output.register_hook(arrived))  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Take the hooks off the graph, so that no later gradient is taken for the loss's."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
