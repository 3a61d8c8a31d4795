"""Why a pass, or one read of it, could not be had: a reason, never a traceback.

Running out of memory is no fact about a network: it goes on up as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from epochzero.errors import DegenerateError, UserError


class PassFailedError(Exception):
    """The message becomes `Score.why` of the proxies that need the pass or the read."""


LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
REASONS = (PassFailedError, DegenerateError, LinAlgError)


def check_samples(found: int, least: int = 2) -> None:
    """Refuse a batch too small for what a proxy compares."""
    if found < least:
        raise PassFailedError(f"needs at least {least} samples, and the batch has {found}")


def or_why(find: Callable[[], Any]) -> Any:
    """What is to be found, or the reason why it cannot be had: without its traceback, which keeps what the run kept."""
    try:
        return find()
    except REASONS as reason:
        reason.__cause__ = reason.__context__ = None
        return reason.with_traceback(None)


@contextmanager
def blaming(who: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Errors of these kinds become the reason: that `who` raised them."""
    try:
        yield
    except (*REASONS, UserError):
        raise
    except kinds as error:
        if out_of_memory(error):
            raise
        raise PassFailedError(blame(who, error)) from error


def blame(who: str, error: Exception) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{who} raised {type(error).__name__}: {first}"


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine has no room: torch has an error for that, but not on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "Storage size calculation overflowed"))
