"""Collects the streams that proxies read, as the network runs and as gradients arrive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from epochzero.engine import postponed
from epochzero.engine.failure import REASONS, PassFailedError, blaming, or_why
from epochzero.engine.passes import Item, Layer, Summed
from epochzero.engine.reads import TABLE
from epochzero.plan import generator

Streams = dict[Item, list[Any] | Exception]
"""The values of each stream so far, or the reason why it has none."""


class Watcher:
    """Collects the streams of one pass; a failure affects its own stream only."""

    def __init__(self, streams: Streams, seed: int, device: torch.device) -> None:
        self.streams = streams
        self.seed = seed
        self.remember: Callable[[Layer], Callable[[], Layer]] = in_memory
        """keeps a layer until its gradient arrives"""
        self.wanted = {stream for stream, _ in streams}
        self.blocks = bool(self.wanted & {"blocks", "block_gradients"})
        self.postponed = postponed.Postponed() if device.type in postponed.POSTPONE_ON else None
        self.copies = False
        """true if the network may write into its outputs later"""
        self.within = ""
        """the part whose parts are the blocks that are read; the whole network is ''"""
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._last: Tensor | None = None
        """the last feature map so far"""
        self._maps: list[Tensor] = []
        """the blocks' feature maps with their graph, if gradients between blocks are read"""

    def __call__(self, layer: Layer) -> None:
        if layer.kind == "block":
            if layer.name and layer.name.rpartition(".")[0] == self.within:
                self._see_block(layer.output)
            return
        if "features" in self.wanted and has_positions(layer.output.shape):
            self._last = layer.output.detach()
        for item in self.streams:
            stream = item[0]
            if (shown := shown_to(stream, layer.kind, layer.op, layer.inputs, layer.output)) is not None:
                self._feed(item, self._place(item), shown)
            elif stream == "layer_gradients" and layer.weight is not None and layer.output.requires_grad:
                self._await_gradient(item, self._place(item), layer)

    def _see_block(self, output: Tensor) -> None:
        if "block_gradients" in self.wanted and output.dim() > 2:
            self._maps.append(output)
        for item in self._asked("blocks"):
            self._feed(item, self._place(item), output)

    def _asked(self, stream: str) -> list[Item]:
        return [item for item in self.streams if item[0] == stream]

    def ran(self) -> None:
        """Ends the forward run: the last feature map is now known."""
        if self._last is not None:
            for item in self._asked("features"):
                self._feed(item, self._place(item), self._last)
        self._last = None

    def between_blocks(self) -> None:
        """Sends random signs back from each block to the one before it; keeps the graph."""
        for i, (before, after) in enumerate(pairwise(self._maps)):
            signs = random_signs(after, self.seed, i)
            arrived = or_why(partial(sent_back, signs, after, before, retain_graph=True))
            for item in self._asked("block_gradients"):
                if isinstance(arrived, Exception):
                    self.streams[item] = arrived
                else:
                    self._feed(item, self._place(item), arrived, signs)
        self._maps.clear()

    def _place(self, item: Item) -> int:
        """Reserves the index of the next value in its stream."""
        collected = self.streams[item]
        if isinstance(collected, Exception):
            return -1
        if isinstance(item[1], Summed):
            collected[:] = collected or [None]
            return 0
        collected.append(None)
        return len(collected) - 1

    def _feed(self, item: Item, place: int, *given: Any) -> None:
        """Adds the value of the stream's function of detached tensors."""
        function, collected = item[1], self.streams[item]
        assert function is not None
        if isinstance(collected, Exception):
            return
        try:
            with torch.no_grad(), blaming("the proxy"):
                if self.postponed and self.postponed.takes(item, place, tuple(map(_widened, given)), self.copies):
                    return
                value = function(*(v.detach() if isinstance(v, Tensor) else v for v in given))
                self._add(item, place, value)
        except REASONS as reason:
            self.streams[item] = reason

    def _add(self, item: Item, place: int, value: Any) -> None:
        collected = self.streams[item]
        assert not isinstance(collected, Exception)
        before = collected[place] if isinstance(item[1], Summed) else None
        if isinstance(before, Tensor) and isinstance(value, Tensor) and value.shape != before.shape:
            shapes = " and ".join("x".join(map(str, one.shape)) for one in (before, value))
            raise PassFailedError(f"its layers give {shapes} values, which do not add up, as with windows")
        collected[place] = value if before is None else before if value is None else before + value

    def finish(self) -> None:
        """Computes the values that were postponed."""
        for item, place, values in self.postponed.values() if self.postponed else ():
            if isinstance(self.streams[item], Exception):
                continue
            if isinstance(values, Exception):
                self.streams[item] = values
            elif values is not None:
                added = or_why(partial(self._add, item, place, values[0]))
                if isinstance(added, Exception):
                    self.streams[item] = added

    def _await_gradient(self, item: Item, place: int, layer: Layer) -> None:
        again = self.remember(layer)

        def arrived(gradient: Tensor) -> None:
            seen = or_why(again)
            if isinstance(seen, Exception):
                self.streams[item] = seen
            self._feed(item, place, seen, gradient)

        self._hooks.append(layer.output.register_hook(arrived))  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Removes the hooks from the graph, so that later gradients are not mistaken for those of the loss."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _widened(given: Any) -> Any:
    """Returns detached maps [B, ...], or a layer's, as those of one network, [B, 1, ...]."""
    if isinstance(given, Layer):
        return given._replace(output=given.output.detach().unsqueeze(1))
    return given.detach().unsqueeze(1)


def shown_to(stream: str, kind: str, op: str, inputs: Sequence[Tensor], output: Tensor) -> Tensor | None:
    """The output or the input of a layer, whichever the stream gives of this kind and op; None if neither."""
    read = TABLE[stream]
    if stream == "layers" or kind in read.output_of:
        return output
    return inputs[0] if op in read.input_of else None


def in_memory(layer: Layer) -> Callable[[], Layer]:
    """Returns a function that returns the layer later; it raises a reason if the output has been changed."""
    version = layer.output._version

    def again() -> Layer:
        if layer.output._version != version:
            raise PassFailedError(f"the output of {layer.name} is changed in place after the layer has run")
        return layer

    return again


def has_positions(shape: Sequence[int]) -> bool:
    """Returns True if a feature map [B, C, ...] has more than one position."""
    return len(shape) > 2 and math.prod(shape[2:]) > 1


def random_signs(at: Tensor, seed: int, pair: int) -> Tensor:
    """Returns 1 or -1 for each number of the feature map after the given pair of blocks."""
    return _signs(at.shape, seed, pair, at.dtype, at.device)


@lru_cache(maxsize=64)
def _signs(shape: torch.Size, seed: int, pair: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randint(2, shape, generator=generator(seed, "az", pair)).to(device, dtype) * 2 - 1


def sent_back(signs: Tensor, after: Tensor, before: Tensor, retain_graph: bool) -> Tensor:
    """Returns the gradient at `before` of signs sent back from `after`; zeros if no path connects them."""
    if not (after.requires_grad and before.requires_grad):
        return torch.zeros_like(before)
    with blaming("the backward pass"):
        gradient = torch.autograd.grad(after, before, signs, retain_graph=retain_graph, allow_unused=True)[0]
    return torch.zeros_like(before) if gradient is None else gradient
