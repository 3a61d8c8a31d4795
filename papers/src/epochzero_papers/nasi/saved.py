"""The state of a long recording in its result's file, from which it resumes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epochzero.errors import UserError
from epochzero.files import write_json
from epochzero.supernet import State

EVERY = 5.0
"""seconds between two lines of progress, and between two saved states"""


class Saved:
    """A result's file, which also holds a search that is under way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State | None = None
        self.seconds = 0.0
        """that the search took before"""
        if path.exists():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                self.state, self.seconds = dict(content["state"]), float(content["seconds"])
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path} holds no search to resume: choose another --out, or remove it.") from None

    def write(self, content: dict[str, Any]) -> None:
        write_json(self.path, content)

    def saving(self, steps: int) -> Callable[[State], None]:
        """Lines on standard error, and the state in the file, every few seconds."""
        begun = written = time.perf_counter()

        def after(state: State) -> None:
            nonlocal written
            now = time.perf_counter()
            if now - written < EVERY:
                return
            written = now
            print(f"{state['step']}/{steps} steps in {now - begun:.0f} s", file=sys.stderr, flush=True)
            self.write({"seconds": self.seconds + now - begun, "state": state})

        return after
