"""A run that comes again and again with other weights, recorded once on a GPU and played from then on.

Launching the kernels of a few samples takes longer than running them. A proxy that averages over many draws of weights
asks for passes that differ in nothing else: their launches are recorded as a CUDA graph, which reads weights and inputs
from the same places each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from epochzero.engine.population.columns import Piece
from epochzero.engine.population.watch import WatcherOfMany
from epochzero.engine.single.watch import Item

PLAIN = 2
"""so many times it is run as it is: recording is not worth it for less, and tables get to the GPU"""


Forward = Callable[[Mapping[str, Tensor], Tensor], WatcherOfMany]


class Replay:
    """Runs `forward(weights, x)`, whose kernels and shapes are the same each time."""

    def __init__(self) -> None:
        self._times = 0
        self._apart = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._weights: dict[str, Tensor] = {}
        """where the recorded kernels read those that are others each time"""
        self._last: Mapping[str, Tensor] = {}
        self._x = torch.empty(0)
        self._found: dict[Item, list[Piece]] = {}

    def __call__(self, forward: Forward, weights: Mapping[str, Tensor], x: Tensor) -> dict[Item, list[Piece]]:
        """What is found. A function that `vmap` does not take may ask the GPU for values: nothing is recorded then."""
        self._times += 1
        if self._graph is None and (self._times <= PLAIN or self._apart or not x.is_cuda):
            self._last, watcher = weights, forward(weights, x)
            self._apart = watcher.apart
            return watcher.pieces()
        if self._graph is None:
            self._record(forward, weights, x)
        assert self._graph is not None
        torch._foreach_copy_(list(self._weights.values()), [weights[name] for name in self._weights])
        self._x.copy_(x)
        self._graph.replay()
        return {item: [_copied(piece) for piece in pieces] for item, pieces in self._found.items()}

    def _record(self, forward: Forward, weights: Mapping[str, Tensor], x: Tensor) -> None:
        others = {name: weight for name, weight in weights.items() if weight is not self._last[name]}
        self._weights, self._x = {name: weight.clone() for name, weight in others.items()}, x.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._found = forward({**weights, **self._weights}, self._x).pieces()
        self._graph, self._last = graph, {}


def _copied(piece: Piece) -> Piece:
    return piece._replace(values=piece.values.clone()) if isinstance(piece.values, Tensor) else piece
