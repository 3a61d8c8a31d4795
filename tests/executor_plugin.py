"""A plug-in for the tests of executors: proxies that sleep, raise and kill the worker they run in.

What they are to do and what they did is said by files in the folder EPOCHZERO_TEST_FOLDER: it reaches any process.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from epochzero.engine import Pass, Trace, need, proxy

COUNT = (need(Pass(), "params"),)


def _folder() -> Path:
    return Path(os.environ["EPOCHZERO_TEST_FOLDER"])


def _note(event: str) -> int:
    """Write a line down; how many of its kind there are now."""
    file = _folder() / event
    with file.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    return len(file.read_text().splitlines())


@proxy(needs=COUNT, higher_is_better=True)
def mortal(trace: Trace) -> float:
    """Parameters; the worker that scores the fifth network kills itself, once for each line of the file `deaths`."""
    deaths = _folder() / "deaths"
    if _note("scored") >= 5 and deaths.exists() and _note("died") <= len(deaths.read_text().splitlines()):
        os.kill(os.getpid(), signal.SIGKILL)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def slow(trace: Trace) -> float:
    """Parameters, after a while."""
    _note("begun")
    print("what a plug-in prints may not disturb the answers")
    time.sleep(0.2)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def buggy(trace: Trace) -> float:
    """Raises what is nobody's fault but its own."""
    raise KeyError("a bug")
