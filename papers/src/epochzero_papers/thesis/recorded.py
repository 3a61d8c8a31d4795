"""A step that runs thousands of times: recorded once on a GPU, and replayed from then on.

Launching the kernels of many small layers takes longer than running them. The step reads its inputs from the same
places and changes the same tensors each time, so that its launches can be a CUDA graph. The first replay is compared
with the step itself; if they differ, or if recording fails, the step keeps running unrecorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from epochzero.engine.gpu.graph import Captured

PLAIN = 3
"""unrecorded runs at first, in which tables get to the GPU and kernels are chosen"""
TOLERANCE = 1e-3
"""relative to the largest number of a tensor: allows sums in another order, not another step"""

Step = Callable[..., Tensor]
Capture = Callable[[Callable[[], Tensor]], Captured[Tensor] | None]
"""records a run, as `epochzero.engine.gpu.graph.capture` does"""


class Recorded:
    """Runs `step(*given)`, which changes the tensors of `state` in place and nothing else."""

    def __init__(self, step: Step, state: Sequence[Tensor], capture: Capture | None) -> None:
        self.step, self.state, self.capture = step, state, capture
        self.times = 0
        self.places: tuple[Tensor, ...] = ()
        self.play: Callable[[], None] | None = None
        self.found = torch.empty(0)

    def __call__(self, *given: Tensor) -> Tensor:
        self.times += 1
        if self.capture is None or self.times <= PLAIN:
            return self.step(*given)
        if self.play is None:
            return self._first(*given)
        return self._played(*given)

    def _played(self, *given: Tensor) -> Tensor:
        assert self.play is not None
        for place, value in zip(self.places, given, strict=True):
            place.copy_(value)
        self.play()
        return self.found.clone()

    def _first(self, *given: Tensor) -> Tensor:
        """Record, and compare a replay with the step; returns the step's own result."""
        assert self.capture is not None
        before = [tensor.clone() for tensor in self.state]
        self.places = tuple(value.clone() for value in given)
        try:
            captured = self.capture(lambda: self.step(*self.places))
            self._set(before)
            played = []
            if captured is not None:
                self.play, self.found = captured
                played = [self._played(*given), *(tensor.clone() for tensor in self.state)]
        except RuntimeError:
            played = []
        self._set(before)
        expected = self.step(*given)
        if not played or not all(map(_alike, played, [expected, *self.state])):
            self.play = self.capture = None
        return expected

    def _set(self, values: Sequence[Tensor]) -> None:
        for tensor, value in zip(self.state, values, strict=True):
            tensor.copy_(value)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Returns whether both are equal up to rounding; NaN counts as 0."""
    one, other = (torch.nan_to_num(t.double(), 0, 0, 0) for t in (one, other))
    return bool((one - other).abs().amax() <= TOLERANCE * other.abs().amax() + 1e-6)
