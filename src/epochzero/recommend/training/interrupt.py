"""Ctrl-C between steps, so that a checkpoint holds all steps so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, signal
from threading import current_thread, main_thread


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Holds back Ctrl-C until a step is complete; the function is true once it came. A second one is not held back."""
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    if current_thread() is not main_thread():  # only the main thread receives signals
        yield lambda: False
        return
    before = signal(SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal(SIGINT, before)
