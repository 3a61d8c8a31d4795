"""Speed as ratios within one run: `make bench`. Absolute times mean little on a shared machine.

together    thirteen proxies in one call against thirteen calls, with and without grasp
dextr       against its own reference variant, which computes what the published code does
loop        candidates a second of a search with a constant proxy, the store on disk included
plans       plans a second, of each space
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch

from epochzero import data
from epochzero.engine import PlanNetwork, Proxy, parse, score_network
from epochzero.registry import spaces
from epochzero.spaces.nb201 import NB201
from epochzero.store import Store
from epochzero.study.loop import run_search
from epochzero.study.task import Task

THIRTEEN = [
    "params", "flops", "grad_norm", "l2_norm", "plain", "snip", "grasp",
    "synflow", "fisher", "jacov", "naswot", "zico", "dextr",
]  # fmt: skip


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def score_all(archs: Sequence[Any], names: Sequence[str], batch: data.Batch) -> Callable[[], Any]:
    space: NB201 = spaces["nb201"]
    proxies = [parse(name) for name in names]
    return lambda: [score_network(PlanNetwork(space.plan(arch)), proxies, batch, 0) for arch in archs]


def together(archs: Sequence[Any], batch: data.Batch, rounds: int) -> dict[str, Any]:
    """The bundle against its members, interleaved so that a slow moment hits both."""
    without = [name for name in THIRTEEN if name != "grasp"]
    ratios: dict[str, list[float]] = {"all": [], "without grasp": []}
    apart: dict[str, float] = {}
    for _ in range(rounds):
        apart = {name: seconds(score_all(archs, [name], batch)) for name in THIRTEEN}
        ratios["all"].append(seconds(score_all(archs, THIRTEEN, batch)) / sum(apart.values()))
        alone = sum(apart[name] for name in without)
        ratios["without grasp"].append(seconds(score_all(archs, without, batch)) / alone)
    return {
        "together/apart": {name: median(values) for name, values in ratios.items()},
        "ms a network": {name: 1e3 * value / len(archs) for name, value in apart.items()},
    }


def dextr_against_reference(archs: Sequence[Any], batch: data.Batch, rounds: int) -> float:
    rival, ours = score_all(archs, ["dextr(variant=reference)"], batch), score_all(archs, ["dextr"], batch)
    return median(seconds(rival) / seconds(ours) for _ in range(rounds))


def candidates_a_second(evaluations: int) -> float:
    """A search whose proxy costs nothing: what is left is the loop and the store."""
    constant = Proxy("constant", lambda: 1.0, (), True, {})
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        task = Task(spaces["nb201"], [constant], data.load("pink"))
        outcome = run_search(task, "evolution", evaluations, store=store)
    return outcome.evaluated / outcome.seconds


def plans_a_second(space: Any, networks: int = 300) -> float:
    """Random architectures, none seen before: planned and counted on one core."""
    rng = Random(1)
    archs = [space.sample(rng) for _ in range(networks)]
    return networks / seconds(lambda: [(plan.params, plan.flops) for plan in map(space.plan, archs)])


def main() -> None:
    """Measure and print; with --out, write the JSON too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=12, help="random NB201 networks, seed 0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    space: NB201 = spaces["nb201"]
    rng = Random(0)
    archs = [space.sample(rng) for _ in range(asked.networks)]
    batch = data.load("pink")
    score_all(archs[:2], [*THIRTEEN, "dextr(variant=reference)"], batch)()
    measured = {
        **together(archs, batch, asked.rounds),
        "dextr: reference/ours": dextr_against_reference(archs, batch, asked.rounds),
        "search loop, candidates/s": candidates_a_second(5000),
        "plans/s": {name: round(plans_a_second(spaces[name])) for name in spaces if hasattr(spaces[name], "plan")},
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"Python {platform.python_version()}",
    }
    json.dump(measured, sys.stdout, indent=2)
    print()
    if asked.out is not None:
        asked.out.write_text(json.dumps(measured, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
