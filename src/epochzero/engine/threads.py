"""Threads of torch on a CPU: one or several, whichever is faster.

Torch divides an operation among as many threads as there are cores and waits for the last of them. For small layers,
and on a machine that others use too, one thread is faster: 50 times where two cores were busy. So the first network
that a process scores on a CPU is timed both ways on a few samples, and the faster number is kept for this process. A
number that was given (`--threads`, `OMP_NUM_THREADS`, `torch.set_num_threads`) is left as it is.

Sums are rounded differently by another number of threads, as they always were: give the number for the same digits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from epochzero.data import Batch
from epochzero.engine.resources import cores
from epochzero.errors import UserError
from epochzero.quantities import MOST_WORKERS

SHARE = 16
"""the part of a batch that is timed: one sample in this many, but two at least"""
ENOUGH = 0.3
"""seconds after which nothing is timed again"""
CLEARLY = 0.9
"""several threads are kept if they take less than this part of the time of one"""
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
AT_FIRST = min(torch.get_num_threads(), cores())
"""threads that this process may use"""


class _State:
    """The state of this process."""

    given = any(os.environ.get(name) for name in VARIABLES)
    """true if somebody chose a number"""
    before = torch.get_num_threads()
    fastest: int | None = None


def give_threads(number: int) -> None:
    """Sets the number for this process."""
    if not 1 <= number <= MOST_WORKERS:
        raise UserError(f"The number of threads is {number}; it has to be at least 1, and at most {MOST_WORKERS:,}.")
    torch.set_num_threads(number)
    _State.given = True


def given_threads() -> int | None:
    """Returns the number that was given, if one was."""
    number = torch.get_num_threads()
    return number if _State.given or number != _State.before else None


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Gives torch this number of threads inside the block; None leaves them as they are."""
    before, given = torch.get_num_threads(), _State.given
    if number is not None:
        give_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _State.given = given


@contextmanager
def fastest_threads(batch: Batch, score: Callable[[Batch], object]) -> Iterator[None]:
    """Inside, torch has the number of threads by which `score` is faster on a few samples of the batch."""
    if given_threads() is not None:
        yield
        return
    if _State.fastest is None:
        _State.fastest = _timed(AT_FIRST, _few(batch), score)
    before = torch.get_num_threads()
    torch.set_num_threads(_State.fastest)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _timed(several: int, batch: Batch, score: Callable[[Batch], object]) -> int:
    """Returns 1 or `several`."""
    spent = {1: 0.0, several: 0.0}
    before = torch.get_num_threads()
    try:
        score(batch)
        while several > 1 and sum(spent.values()) < ENOUGH:
            for number in spent:
                torch.set_num_threads(number)
                start = time.perf_counter()
                score(batch)
                spent[number] += time.perf_counter() - start
    except Exception:  # the whole batch has the same error, or none
        return several
    finally:
        torch.set_num_threads(before)
    return several if spent[several] < CLEARLY * spent[1] else 1


def _few(batch: Batch) -> Batch:
    size = min(batch.size, max(2, batch.size // SHARE))

    def part(index: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        x, y = batch.part(index)
        return x[:size], None if y is None else y[:size]

    return replace(batch, size=size, make_part=part)
