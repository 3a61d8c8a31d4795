"""A plug-in for the tests of executors: proxies that sleep, raise and kill the worker they run in.

What they are to do and what they did is said by files in the folder EPOCHZERO_TEST_FOLDER: it reaches any process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from epochzero.engine import Pass, Trace, need, proxy

COUNT = (need(Pass(), "params"),)


def _folder() -> Path:
    return Path(os.environ["EPOCHZERO_TEST_FOLDER"])


def _note(event: str) -> int:
    """Write down who did it, a process or a node of Ray; how many of its kind there are now."""
    file = _folder() / event
    ray: Any = sys.modules.get("ray")
    who = ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else os.getpid()
    with file.open("a") as lines:
        lines.write(f"{who}\n")
    return len(file.read_text().splitlines())


@proxy(needs=COUNT, higher_is_better=True)
def mortal(trace: Trace) -> float:
    """Parameters; the worker that scores the fifth network kills itself, once for each line of the file `deaths`."""
    if "epochzero.run.executors.process_worker" in sys.modules:
        print("what a plug-in prints may not disturb the answers")
    deaths = _folder() / "deaths"
    if _note("scored") >= 5 and deaths.exists() and _note("died") <= len(deaths.read_text().splitlines()):
        os.kill(os.getpid(), signal.SIGKILL)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def slow(trace: Trace) -> float:
    """Parameters, after the seconds that the file `pace` says."""
    _note("begun")
    pace = _folder() / "pace"
    time.sleep(float(pace.read_text()) if pace.exists() else 0.0)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def buggy(trace: Trace) -> float:
    """Parameters, or where there is a file `bug`, what is nobody's fault but its own."""
    if (_folder() / "bug").exists():
        raise KeyError("a bug")
    return float(trace.params)
