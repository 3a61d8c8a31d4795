"""The default executor on a CPU beside each setting of its own, taken in turn: `python benchmarks/cpu.py [--busy 2]`.

Milliseconds a network by `auto`, by one thread, by processes and by all threads (of two networks: it may be slow), and
the ratio of `auto` to the best of the others. Every round takes each in turn, so that the load of the machine hits all
alike. All are warmed up. `--busy` starts processes that keep as many cores busy meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from random import Random

from epochzero import data
from epochzero.engine import parse_list
from epochzero.engine.resources import cores
from epochzero.executors import Executor
from epochzero.executors.auto import START, Auto
from epochzero.executors.local import Local
from epochzero.executors.processes import Processes
from epochzero.registry import spaces
from epochzero.study.task import Task

CASES = {"nb201": ("dextr", 8), "nats_sss": ("grad_norm,naswot", 8), "autoformer_tiny": ("grad_norm", 2)}
"""proxies and samples by space"""


def measured(name: str, networks: int, rounds: int) -> dict[str, float]:
    """Milliseconds a network by setting."""
    space, rng, (proxies, samples) = spaces[name], Random(0), CASES[name]
    batch = data.load("pink", input_shape=(3, 32, 32), num_classes=10, size=samples)
    task = Task(space, parse_list(proxies), batch)
    archs = [space.sample(rng) for _ in range(networks)]
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        auto, workers = stack.enter_context(Auto()), stack.enter_context(Processes())
        ways: dict[str, Executor] = {"auto": auto, "one thread": Local(1), "processes": workers}
        for executor in ways.values():
            executor.score(task, archs)
        begun = time.perf_counter()
        while time.perf_counter() - begun < 1.2 * START:
            auto.score(task, archs)
        for _ in range(rounds):
            for way, executor in ways.items():
                start = time.perf_counter()
                executor.score(task, archs)
                spent.setdefault(way, []).append(1e3 * (time.perf_counter() - start) / networks)
    start = time.perf_counter()
    Local(cores()).score(task, archs[:2])
    spent["all threads"] = [500 * (time.perf_counter() - start)]
    return {way: sum(each) / len(each) for way, each in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--networks", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spaces", default=",".join(CASES))
    asked = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)]
    try:
        for name in asked.spaces.split(","):
            ms = measured(name, asked.networks, asked.rounds)
            ratio = ms["auto"] / min(each for way, each in ms.items() if way != "auto")
            load = os.getloadavg()[0]
            line = {"space": name, "busy": asked.busy, "load": load, "ms": ms, "auto / best": ratio}
            print(json.dumps(line), flush=True)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
