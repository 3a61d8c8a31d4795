"""Strict runs: the same scores to the last bit, each time on one machine.

Networks run one at a time on one thread, by torch's deterministic algorithms. Strict scores have a batch of their own
name in a store, so that they are never mixed with others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from epochzero.errors import UserError


class _State:
    """The state of this process."""

    strict = False


def is_strict() -> bool:
    return _State.strict


def set_strict(strict: bool) -> bool:
    """Sets whether this process scores strictly; returns it."""
    _State.strict = strict
    if strict:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which torch asks for on a GPU
    return strict


@contextmanager
def strictly(strict: bool = True) -> Iterator[None]:
    """Inside, this process scores strictly, or as it does anyway."""
    before = _State.strict
    set_strict(strict or before)
    try:
        yield
    finally:
        set_strict(before)


def its_threads(threads: int | None) -> int | None:
    """The number of threads that was asked for, or one; UserError for more than a strict run has."""
    if not _State.strict:
        return threads
    if threads not in (None, 1):
        raise UserError(
            f"A strict run has one thread for each network, not {threads}: leave out --threads or --strict."
        )
    return 1


def batch_name(batch: str) -> str:
    """The name of a batch in a store."""
    return f"{batch}-strict" if _State.strict else batch


@contextmanager
def deterministic() -> Iterator[None]:
    """Inside, torch computes as a strict run has to, if this is one; afterwards as before."""
    if not _State.strict:
        yield
        return
    import torch

    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        torch.backends.cudnn.benchmark = benchmark
        torch.set_num_threads(threads)
