"""Reasons why a pass, or one read of it, has no value: a sentence, never a traceback.

Running out of memory is not a property of a network: such errors are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from epochzero.errors import DegenerateError, UserError


class KernelError(Exception):
    """A GPU kernel of ours that cannot be compiled or launched on this machine."""


FULL = ("can't allocate memory", "Storage size calculation overflowed", "CUDA error: out of memory")
"""words of errors that torch has no class for"""


class PassFailedError(Exception):
    """The message becomes `Score.why` of the proxies that need the pass or the read."""


class BuildError(UserError):
    """A factory that raised an error in place of a network, or a module without weights to run."""


LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
REASONS = (PassFailedError, DegenerateError, LinAlgError)


def check_samples(samples: int, least: int = 2) -> None:
    """Refuses a batch that is too small for what a proxy compares."""
    if samples < least:
        raise PassFailedError(f"needs at least {least} samples, and the batch has {samples}")


def or_why(find: Callable[[], Any]) -> Any:
    """Returns the value of `find`, or the reason why it has none, without the traceback, which would keep the graph."""
    try:
        return find()
    except REASONS as reason:
        reason.__cause__ = reason.__context__ = None
        return reason.with_traceback(None)


@contextmanager
def blaming(who: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Turns errors of these kinds into a reason that names `who` raised them."""
    try:
        yield
    except (*REASONS, UserError):
        raise
    except kinds as error:
        if not_of_the_network(error):
            raise
        raise PassFailedError(blame(who, error)) from error


def blame(who: str, error: Exception) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{who} raised {type(error).__name__}: {first}"


def out_of_memory(error: BaseException) -> bool:
    """Returns True if memory ran out: torch has an error class for that, but not on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(words in str(error) for words in FULL)


def device_failed(error: BaseException) -> bool:
    """Returns True if a GPU failed or is gone: nothing runs on it in this process any more."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error) and not out_of_memory(error)


def not_of_the_network(error: BaseException) -> bool:
    """Returns True for an error that says nothing about the network that was run."""
    return isinstance(error, KernelError) or out_of_memory(error) or device_failed(error)
