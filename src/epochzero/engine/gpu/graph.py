"""A run that is repeated with the same shapes, captured once as a CUDA graph and replayed from then on.

Launching the kernels of a small network takes longer than running them. A captured run reads its inputs from the same
memory each time and writes its results to the same memory. What cannot be captured runs as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

import torch

WARM_UP = 3
"""runs before a capture, in which libraries choose their kernels"""

T = TypeVar("T")


class Captured(NamedTuple, Generic[T]):
    """A captured run."""

    replay: Callable[[], None]
    result: T
    """the return value of the run; each replay rewrites its tensors"""


def capture(
    run: Callable[[], T], stream: torch.cuda.Stream | None = None, error_mode: str = "global"
) -> Captured[T] | None:
    """Captures the kernels that a run launches, without running them; None, with a warning, where that fails.

    `stream` is the stream to capture on, torch's own for captures by default. `error_mode` says whose unsafe calls
    make it fail: those of any thread (`global`) or of this one (`thread_local`).
    """
    before = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=error_mode):
            result = run()
    except torch.OutOfMemoryError:
        torch.cuda.set_stream(before)
        raise
    except RuntimeError as error:
        torch.cuda.set_stream(before)  # a capture that fails leaves its own stream as the current one
        warnings.warn(
            f"A CUDA graph could not be captured, so its kernels are launched one by one, which is slower: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return Captured(graph.replay, result)


def warm_up(run: Callable[[], object]) -> None:
    """Runs it a few times, on a stream of its own."""
    with own_stream(torch.device("cuda")):
        for _ in range(WARM_UP):
            run()


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Launches go to a new stream, which can be captured; on a CPU, nothing changes."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
