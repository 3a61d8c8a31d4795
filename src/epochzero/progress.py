"""Progress of long work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Progress = Callable[[int, int | None, str], None]
"""called with how much is done, the total (None if unknown) and a note"""


def silent(done: int, total: int | None, note: str) -> None:
    """Progress that nobody sees."""


def part_of(progress: Progress, number: int, count: int, name: str) -> Progress:
    """Progress of one of several equal pieces of work, in that of all."""

    def show(done: int, total: int | None, note: str) -> None:
        each = total or 0
        progress(number * each + done, count * each, f"{name}: {note}")

    return show


class Lines:
    """Progress as lines on standard error, at most one every few seconds."""

    def __init__(self, unit: str, every: float = 5.0) -> None:
        self.unit, self.every = unit, every
        self.begun = self.written = time.perf_counter()

    def __call__(self, done: int, total: int | None, note: str) -> None:
        now = time.perf_counter()
        if now - self.written < self.every and done != total:
            return
        self.written = now
        count = f"{done}" if total is None else f"{done}/{total}"
        more = f", {note}" if note else ""
        print(f"{count} {self.unit} in {now - self.begun:.0f} s{more}", file=sys.stderr, flush=True)
