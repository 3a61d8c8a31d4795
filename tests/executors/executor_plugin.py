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

import torch

from epochzero.engine import Pass, Trace, need, proxy

COUNT = (need(Pass(), "params"),)


def _folder() -> Path:
    return Path(os.environ["EPOCHZERO_TEST_FOLDER"])


def _who() -> str:
    """A node of Ray, or a process."""
    ray: Any = sys.modules.get("ray")
    return str(ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else os.getpid())


def _note(event: str) -> int:
    """Write down who did it; how many of its kind there are now."""
    file = _folder() / event
    with file.open("a") as lines:
        lines.write(f"{_who()}\n")
    return len(file.read_text().splitlines())


@proxy(needs=COUNT, higher_is_better=True)
def mortal(trace: Trace) -> float:
    """Parameters; the worker that scores the fifth network kills itself, once for each line of the file `deaths`."""
    if "epochzero.executors.process_worker" in sys.modules:
        print("what a plug-in prints may not disturb the answers")
    deaths = _folder() / "deaths"
    if _note("scored") >= 5 and deaths.exists() and _note("died") <= len(deaths.read_text().splitlines()):
        os.kill(os.getpid(), signal.SIGKILL)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def slow(trace: Trace) -> float:
    """Parameters, after the seconds that the file `pace` says.

    Never while there is a file `hold` that is empty, or names the node or process that this is.
    """
    _note("begun")
    pace, hold = _folder() / "pace", _folder() / "hold"
    time.sleep(float(pace.read_text()) if pace.exists() else 0.0)
    while hold.exists() and hold.read_text() in ("", _who()):
        time.sleep(0.02)
    return float(trace.params)


@proxy(needs=COUNT, higher_is_better=True)
def precision(trace: Trace) -> float:
    """1 where convolutions may be rounded to TF32, and 2 more where products of matrices may."""
    return float(torch.backends.cudnn.allow_tf32 + 2 * torch.backends.cuda.matmul.allow_tf32)


@proxy(needs=COUNT, higher_is_better=True)
def buggy(trace: Trace) -> float:
    """Parameters, or where there is a file `bug`, what is nobody's fault but its own."""
    if (_folder() / "bug").exists():
        raise KeyError("a bug")
    return float(trace.params)
