"""Costs and gains of executors, by a sleeping proxy: `python benchmarks/executors.py [--executor ray --workers 4]`.

efficiency   seconds of sleep over seconds of all workers, for a search by evolution at its own batch size, and for
             batches of 32; workers are warm
overhead     milliseconds a candidate that come on top where the proxy costs nothing, at batches of 32, against local
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from epochzero import data
from epochzero.cli.plugin import load_plugins
from epochzero.engine import parse
from epochzero.executors import Executor, executor_of
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.loop import run_search
from epochzero.study.task import Task

SLEEPER = """
import time
from epochzero.engine import Pass, need, proxy

@proxy(needs=[need(Pass(), "params")], higher_is_better=True)
def sleeper(trace, *, ms: int = 50) -> float:
    time.sleep(ms / 1e3)
    return float(trace.params)
"""


def seconds(executor: Executor, ms: int, evaluations: int, batch: int, seed: int) -> float:
    """A search with a store on disk, by a proxy that sleeps for these milliseconds."""
    task = Task(spaces["nb201"], [parse(f"sleeper(ms={ms})")], data.load("pink"), executor=executor)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        start = time.perf_counter()
        run_search(task, "evolution", evaluations, seed=seed, options={"batch": batch}, store=store)
        return time.perf_counter() - start


def measured(executor: Executor, evaluations: int) -> dict[str, Any]:
    """The figures of one executor; the first search of each kind warms it up."""
    found: dict[str, Any] = {"workers": executor.workers}
    for batch in (8, 32):
        seconds(executor, 50, 2 * batch, batch, 0)
        took = seconds(executor, 50, evaluations, batch, 1)
        found[f"efficiency, 50 ms, batches of {batch}"] = round(0.05 * evaluations / took / executor.workers, 3)
    seconds(executor, 0, 64, 32, 0)
    found["ms a candidate, 0 ms, batches of 32"] = round(1e3 * seconds(executor, 0, 640, 32, 1) / 640, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", default="processes,ray", help="separated by commas")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--evaluations", type=int, default=320)
    asked = parser.parse_args()
    figures: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "sleeper.py"
        plugin.write_text(SLEEPER)
        load_plugins([str(plugin)])
        for name in ("local", *asked.executor.split(",")):
            workers = None if name == "local" else asked.workers
            prepare = partial(load_plugins, [str(plugin)])
            with executor_of(name, workers=workers, threads=1, prepare=prepare) as executor:
                figures[name] = measured(executor, asked.evaluations // (1 if workers else 4))
                print(name, figures[name], file=sys.stderr)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
