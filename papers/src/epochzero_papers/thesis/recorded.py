"""A step that comes thousands of times: recorded once on a GPU, and played from then on.

Launching the kernels of many small layers takes longer than running them. The step reads its inputs from the same
places and changes the same tensors each time, so that its launches can be a CUDA graph. The first time, what the
recording does is compared with the step itself; where they differ, or where nothing can be recorded, the step goes on
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from epochzero.engine.gpu.graph import Captured

PLAIN = 3
"""so many times the step is run as it is, for tables to get to the GPU and kernels to be chosen"""
TOLERANCE = 1e-3
"""of the largest number of a tensor: sums in another order, not another step"""

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
        """Record, and see whether playing does what the step does; the step's own result stands."""
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
    """Up to rounding; where one is no number, the other need not be the same one."""
    one, other = (torch.nan_to_num(t.double(), 0, 0, 0) for t in (one, other))
    return bool((one - other).abs().amax() <= TOLERANCE * other.abs().amax() + 1e-6)
