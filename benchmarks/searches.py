"""Cost of a search without scoring: milliseconds per candidate and memory, early and late.

    python benchmarks/searches.py                     # every method, 20,000 candidates
    python benchmarks/searches.py --candidates 480000 --only evolution_zen,evolution_az,evolution,random
    python benchmarks/searches.py --file-store        # a second row for each, with a store on disk

The space is synthetic and practically endless (60 places with 8 choices), scores are a hash of the architecture, and
the store is in memory, so that all time is that of the loop, the search, ranks and the store. Processor time, which
other work on the machine does not lengthen, has the hashing in it; wall-clock time is also given, without.
Searches that choose from a pool have it drawn and scored first; what that costs a network of the pool comes last.
"""

from __future__ import annotations

import argparse
import resource
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from epochzero import data
from epochzero.executors.base import ScoredBatch
from epochzero.objectives.goals import parse_goals
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.registry import searches, spaces
from epochzero.spaces.nb201 import NB201
from epochzero.store import Store
from epochzero.store.database import MEMORY
from epochzero.study.loop import run_search
from epochzero.study.methods.base import Pooling
from epochzero.study.result import Result
from epochzero.study.task import Task
from epochzero.types import Score

SLOW = {"tpe": 300, "hnas": 60}
"""through another library: measured with few candidates"""
POOL = 2_000
"""networks in the pool of a slow search; that of another is as large as its candidates are many"""


class Endless(NB201):
    """Cells of 60 places; only their text and their neighbours are ever used."""

    name = "endless"
    choices = tuple("abcdefgh")  # type: ignore[assignment]
    places = 60

    def text(self, arch: tuple[str, ...]) -> str:
        return "".join(arch)

    def plan(self, arch: Any, num_classes: int = 10, input_shape: Any = (3, 32, 32)) -> Any:
        return spaces["nb201"].plan(spaces["nb201"].smallest())


class Hashed:
    """Answers at once for every proxy."""

    name = "hash"
    candidates: Sequence[Any] | None = None

    def covers(self, proxy: Any) -> bool:
        return True

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        names = [proxy.text for proxy in task.proxies]
        return [
            ({name: Score(zlib.crc32(f"{name}{''.join(arch)}".encode()) / 1e9 + 1) for name in names}, 0.0)
            for arch in archs
        ]


def measure(method: str, candidates: int, place: str) -> None:
    """Print one line: overhead of a candidate in the first and in the last tenth, and of all."""
    candidates = min(candidates, SLOW.get(method, candidates))
    objective, goals = parse_objective("rank(dextr,zico,flops)" if method == "evolution_az" else "dextr"), None
    if getattr(searches[method], "fewest", 1) > 1:
        goals = parse_goals("dextr,-flops")
        objective = Objective(goals.proxies)
    task = Task(Endless(), objective.proxies, data.pink(size=1), sources=(Hashed(),))
    options = {"networks": POOL if method in SLOW else candidates} if isinstance(searches[method], Pooling) else {}
    marks: dict[int, tuple[float, float]] = {}
    """processor and wall-clock time by candidates; -1: when the pool was scored"""

    def note(outcome: Result) -> None:
        now = time.process_time(), time.perf_counter() - outcome.clock.spent["scoring"]
        marks[-1 if outcome.note else outcome.evaluated] = now

    begun = time.process_time()
    with Store.open(place) as store:
        by: dict[str, Any] = {"objective": goals or objective, "options": options}
        outcome = run_search(task, method, candidates, **by, store=store, progress=note)
    tenth = max(1, outcome.evaluated // 10)

    def cost(first: int, last: int) -> str:
        inside = [n for n in marks if first <= n <= last]
        n0, n1 = inside[0], inside[-1]
        (cpu0, wall0), (cpu1, wall1) = marks[n0], marks[n1]
        return f"{1e3 * (cpu1 - cpu0) / (n1 - n0):.3f} ms ({1e3 * (wall1 - wall0) / (n1 - n0):.3f})"

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    early, late = cost(0, tenth), cost(outcome.evaluated - tenth, outcome.evaluated)
    told = f"first tenth {early}   last tenth {late}   mean {cost(0, outcome.evaluated)}   {peak:,.0f} MB"
    pool = f"   pool {1e3 * (marks[-1][0] - begun) / options['networks']:.3f} ms" if options else ""
    where = "memory" if place == MEMORY else "file"
    print(f"{method:18} {where:6} {outcome.evaluated:8,}   {told}{pool}", flush=True)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--only", help="methods, separated by commas")
    parser.add_argument("--file-store", action="store_true", help="measure with a store on disk as well")
    given = parser.parse_args()
    for method in given.only.split(",") if given.only else searches:
        measure(method, given.candidates, MEMORY)
        if given.file_store:
            with TemporaryDirectory() as folder:
                measure(method, given.candidates, str(Path(folder) / "run.db"))


if __name__ == "__main__":
    main()
