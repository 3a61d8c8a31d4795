"""A forward pass that is repeated with other weights, captured once on a GPU and replayed from then on.

Launching the kernels of a few samples takes longer than running them. A proxy that averages over many draws of weights
asks for passes that differ in nothing else: their launches are recorded as a CUDA graph, which reads weights and inputs
from the same places each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from epochzero.engine import foreach
from epochzero.engine.gpu.graph import Captured, capture
from epochzero.engine.passes import Item
from epochzero.engine.population.columns import LayerValues
from epochzero.engine.population.watch import WatcherOfMany

PLAIN = 2
"""runs before the capture, which upload tables; fewer repetitions are not worth one"""


Forward = Callable[[Mapping[str, Tensor], Tensor], WatcherOfMany]


class Replay:
    """Runs `forward(weights, x)`, which has the same kernels and shapes each time."""

    def __init__(self) -> None:
        self._times = 0
        self._plain = False
        """nothing can be captured"""
        self._captured: Captured[dict[Item, list[LayerValues]]] | None = None
        self._weights: dict[str, Tensor] = {}
        """the memory from which the captured kernels read the weights that change"""
        self._last: Mapping[str, Tensor] = {}
        self._x = torch.empty(0)

    def __call__(self, forward: Forward, weights: Mapping[str, Tensor], x: Tensor) -> dict[Item, list[LayerValues]]:
        """Returns the collected pieces. A function that `vmap` refuses may read GPU values: it is not captured."""
        self._times += 1
        if self._captured is None and self._times > PLAIN and not self._plain and x.is_cuda:
            self._record(forward, weights, x)
        if self._captured is None:
            self._last, watcher = weights, forward(weights, x)
            self._plain = self._plain or watcher.apart
            return watcher.pieces()
        foreach.copy_(list(self._weights.values()), [weights[name] for name in self._weights])
        self._x.copy_(x)
        self._captured.replay()
        return {item: [_copied(piece) for piece in pieces] for item, pieces in self._captured.result.items()}

    def _record(self, forward: Forward, weights: Mapping[str, Tensor], x: Tensor) -> None:
        others = {name: weight for name, weight in weights.items() if weight is not self._last[name]}
        self._weights, self._x = {name: weight.clone() for name, weight in others.items()}, x.clone()
        run = partial(forward, {**weights, **self._weights}, self._x)
        self._captured = capture(lambda: run().pieces(), error_mode="thread_local")
        self._plain = self._captured is None
        self._last = {}


def _copied(piece: LayerValues) -> LayerValues:
    return piece._replace(values=piece.values.clone()) if isinstance(piece.values, Tensor) else piece
