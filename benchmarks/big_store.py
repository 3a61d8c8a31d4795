"""A store of a million scores in ten thousand runs: time and memory of what users do with it.

    python benchmarks/big_store.py                     # makes the store, then measures; ten minutes
    python benchmarks/big_store.py --keep big.db       # keeps the store, or uses the one that is there

The runs are searches whose executor draws its scores: one of 200,000 networks, the others small. Every row of the
table is a process of its own, and its memory the largest that it held; seconds of its processor say more than those of
the clock on a machine that others use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LARGE, SMALL = 200_000, 2_000
EPOCHZERO = "from epochzero.cli import main; main()"
OURS = "import sys; sys.path[:0] = sys.argv[1:2]; import big_store; "
MADE = OURS + "big_store.filled(sys.argv[2], *map(int, sys.argv[3:]))"
RESUMED = OURS + "big_store.searched(sys.argv[2], sys.argv[3], int(sys.argv[4]))"
HERE = str(Path(__file__).parent)
MEMORY = """
import atexit, re
def _told():
    import sys
    held = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
    print("VmHWM", held, file=sys.stderr)
atexit.register(_told)
"""
"""Before a command: a child's `ru_maxrss` would begin with the memory of the process that started it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="the store, which is made unless it exists")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "big.db"
        if not path.exists():
            _, seconds, _ = measured(MADE, HERE, str(path), str(asked.scores), str(asked.runs))
            print(f"made in {seconds:.0f} s of one core, {path.stat().st_size / 1e6:.0f} MB", flush=True)
        print("| what | seconds | of one core | MB |\n|---|---|---|---|")
        for name, (program, *arguments) in commands(path, Path(folder), asked.scores).items():
            clock, seconds, megabytes = measured(program, *arguments)
            print(f"| {name} | {clock:.2f} | {seconds:.2f} | {megabytes:.0f} |", flush=True)


def filled(path: str, scores: int, runs: int) -> None:
    """Makes the store: a large search, and small ones by different seeds."""
    from random import Random

    from epochzero.registry import spaces
    from epochzero.store import JSON, Evaluated, Store, manifest
    from epochzero.types import Score, Setting

    searched(path, "random", large(scores))
    searched(path, "evolution", SMALL)
    each = (scores - large(scores) - SMALL) // (runs - 2)
    space, rng = spaces["darts"], Random(0)
    archs = [space.text(space.sample(rng)) for _ in range(10 * each)]
    settings: dict[str, JSON] = {"space": "darts", "proxy": "dextr", "method": "random", "budget": each}
    origin = manifest({**settings, "input_shape": [3, 32, 32]})
    with Store.open(path) as store:
        for seed in range(1, runs - 1):
            run = store.begin_run("search", {**settings, "seed": seed}, origin)
            steps = enumerate(rng.sample(archs, each))
            batch = [Evaluated(step, arch, {"dextr": (Score(rng.random()), 0.01)}) for step, arch in steps]
            run.record(Setting("darts", "pink-s0-0123456789abcdef", f"default:{seed}"), batch)
            run.finish({"best": batch[0].arch, "space": "darts", "evaluated": each})


def large(scores: int) -> int:
    """The networks of the large search."""
    return min(LARGE, scores // 2)


def searched(path: str, method: str, networks: int) -> None:
    """Makes or resumes a search."""
    from epochzero import data
    from epochzero.engine import parse
    from epochzero.executors.base import ScoredBatch
    from epochzero.executors.local import Local
    from epochzero.registry import spaces
    from epochzero.store import Store
    from epochzero.study.loop import run_search
    from epochzero.study.task import Task
    from epochzero.types import Score

    class Drawn(Local):
        """Scores that cost nothing."""

        def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
            texts = map(task.space.text, archs)
            return [({"naswot": Score(zlib.crc32(text.encode()) / 2**32)}, 0.01) for text in texts]

    with Store.open(path) as store:
        task = Task(spaces["mobilenet"], [parse("naswot")], data.load("pink", size=2), executor=Drawn(1))
        options = {"batch": 1000} if method == "random" else {}
        result = run_search(task, method, networks, options=options, store=store)
        print(result.recalled)


def commands(path: Path, folder: Path, scores: int) -> dict[str, list[str]]:
    """Programs with their arguments."""
    store = [EPOCHZERO, "store", str(path)]
    return {
        "import of the command line": [EPOCHZERO, "--version"],
        f"resume evolution over {SMALL:,} networks": [RESUMED, HERE, str(path), "evolution", str(SMALL)],
        f"resume a random search of {large(scores):,}": [RESUMED, HERE, str(path), "random", str(large(scores))],
        "list of runs": store,
        "list of runs, JSON": [*store, "--json"],
        "CSV": [*store, "--to", str(folder / "scores.csv")],
        "CSV, compressed": [*store, "--to", str(folder / "scores.csv.gz")],
        "Parquet": [*store, "--to", str(folder / "scores.parquet")],
        "report of the latest run": [EPOCHZERO, "report", str(path), "--out", str(folder / "latest.html")],
    }


def measured(program: str, *arguments: str) -> tuple[float, float, float]:
    """Seconds of the clock and of one core, and megabytes, of a process of its own."""
    start, before = time.perf_counter(), os.times()
    command = [sys.executable, "-c", MEMORY + program, *arguments]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    clock, after = time.perf_counter() - start, os.times()
    if ran.returncode:
        raise SystemExit(f"{arguments} ended with {ran.returncode}:\n{ran.stderr}")
    held = int(ran.stderr.rpartition("VmHWM")[2])
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return clock, used, held / 1024


if __name__ == "__main__":
    main()
