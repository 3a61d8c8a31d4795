"""Work that runs ahead of a GPU's queue, on a stream of its own.

A launch on a GPU queues after all earlier ones. The results of a pass are read while the next pass runs: on a side
stream, which waits for that pass alone and has priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class Mark(NamedTuple):
    """A place in a device's queue, after everything launched so far."""

    device: torch.device
    event: torch.cuda.Event


def mark(device: torch.device) -> Mark | None:
    """Returns a mark, or None on a device that has no queue."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return Mark(device, event)


@contextmanager
def on_side_stream(marks: Sequence[Mark | None]) -> Iterator[None]:
    """Kernels launched in this context wait for the marks alone, and are done at its end; without marks, they queue.

    Tensors made before the marks and freed later are therefore not overwritten while they are read here.
    """
    behind = [one for one in marks if one is not None]
    if not behind or len(behind) < len(marks):
        yield
        return
    side = _side(behind[0].device)
    for _, event in behind:
        side.wait_event(event)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        side.synchronize()


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


class HostCopy:
    """A copy of numbers to the CPU that does not make this process wait."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        if numbers.is_cuda:
            here = torch.empty_like(numbers, device="cpu", pin_memory=True)
            self._numbers = here.copy_(numbers, non_blocking=True)
        self._there = mark(numbers.device)

    def wait(self) -> Tensor:
        if self._there is not None:
            self._there.event.synchronize()
        return self._numbers
