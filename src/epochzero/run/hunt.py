"""Search a space by a proxy within limits, and write what was found into one file.

    python -m epochzero.run.hunt --space mobilenet --method evolution_az --proxy dextr --max-flops 450M --budget 2000
        --batch-size 64 --device cuda --out mobilenet.json

Needs torch and numpy alone; `epochzero search` does the same and more. The file says what the best networks are and how
large, how large the largest that was scored is, counted on its plan, and where the time went. With --store the same
command goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from epochzero.bare import command
from epochzero.engine.device import default_device, machine
from epochzero.engine.precision import set_precision
from epochzero.errors import UserError
from epochzero.executors.base import Executor
from epochzero.executors.local import LOCAL
from epochzero.executors.processes import Processes
from epochzero.objectives.objective import parse_objective
from epochzero.quantities import count, shape
from epochzero.registry import spaces
from epochzero.run.inside import pair
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.store.database import MEMORY
from epochzero.study.loop import Outcome, budget_of, defaults_of, run_search
from epochzero.study.networks import batch_for
from epochzero.study.result import nothing_found
from epochzero.study.sources import Listed, TableSource
from epochzero.study.task import Task
from epochzero.types import Origin

EVERY = 5.0
"""seconds between two lines of progress"""
TOP = 15


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m epochzero.run.hunt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--method", default="evolution")
    parser.add_argument("--proxy", default="dextr")
    parser.add_argument("--budget", type=int, help="networks to evaluate; default: the method's own, or 300")
    parser.add_argument("--time-limit", type=float, help="seconds after which no further networks are looked at")
    parser.add_argument("--max-params", help="most parameters: 1M")
    parser.add_argument("--max-flops", help="most multiply-accumulates: 450M")
    parser.add_argument("--among", type=Path, help="a table whose networks are the only candidates")
    parser.add_argument("--data", default="pink")
    parser.add_argument("--input-shape", help="of one sample of noise: 3,224,224")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--init", default="default")
    parser.add_argument("--seed", type=int, default=0, help="draws weights, data and candidates")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--option", action="append", default=[], help="of the method: key=value; may be given often")
    parser.add_argument("--store", default=MEMORY, help="keeps scores, to go on from (SQLite)")
    parser.add_argument("--out", type=Path, required=True, help="the result, a JSON file")
    return parser


def hunt(asked: argparse.Namespace) -> dict[str, Any]:
    """Search as asked; what was found, as it is written to the file."""
    if asked.out.suffix != ".json":
        raise UserError(f"--out takes a name that ends with .json, not '{asked.out}'.")
    if asked.workers < 1:
        raise UserError(f"--workers is {asked.workers}; it has to be at least 1.")
    if asked.tf32 and asked.store != MEMORY:
        raise UserError(
            f"The store '{asked.store}' does not tell scores with TF32 from those in single precision: "
            "leave out --store or --tf32."
        )
    set_precision(asked.tf32)
    space, objective = spaces[asked.space], parse_objective(asked.proxy)
    limits = Budget(count(asked.max_params, "--max-params"), count(asked.max_flops, "--max-flops"))
    batch = batch_for(space, asked.data, input_shape=shape(asked.input_shape), size=asked.batch_size, seed=asked.seed)
    among = () if asked.among is None else (Listed(TableSource.read(asked.among, space)),)
    given = _options(asked.method, asked.option)
    with ExitStack() as open_:
        crew: Executor = LOCAL
        if asked.workers > 1:
            crew = open_.enter_context(Processes(asked.workers))
        store = open_.enter_context(Store.open(asked.store))
        task = Task(space, objective.proxies, batch, Origin(asked.init, asked.seed), asked.device, crew, among)
        outcome = run_search(
            task,
            asked.method,
            budget_of(asked.method, space, given) if asked.budget is None else asked.budget,
            seed=asked.seed,
            objective=objective,
            budget=limits,
            options=given,
            store=store,
            progress=Progress(),
            time_limit=asked.time_limit,
        )
        found = report(outcome, store, limits) | {"method": asked.method, "options": given, "seed": asked.seed}
    found["machine"] = machine(asked.device) | {"workers": asked.workers}
    asked.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def report(outcome: Outcome, store: Store, limits: Budget) -> dict[str, Any]:
    """What was found, and what every network that was scored has at most."""
    if outcome.best is None:
        raise nothing_found(outcome)
    task, seconds = outcome.task, outcome.seconds
    (run,) = [run for run in store.runs() if run.id == outcome.run]
    texts = {step.arch for steps in run.history().values() for step in steps}
    sizes = [task.size(task.space.parse(text)) for text in texts]
    best = task.size(outcome.best.arch)
    return {
        "space": task.space.name,
        "proxy": outcome.text,
        "best": {
            "arch": outcome.best.text,
            "score": outcome.best.score.value,
            "params": best.params,
            "flops": best.flops,
        },
        "top": [{"arch": one.text, "score": one.score.value} for one in outcome.top(TOP)],
        "limits": {"params": limits.max_params, "flops": limits.max_flops},
        "largest": {"params": max(size.params for size in sizes), "flops": max(size.flops for size in sizes)},
        "beyond": sum(not limits.fits(size) for size in sizes),
        "evaluated": outcome.evaluated,
        "stopped": outcome.stopped,
        "unscored": outcome.unscored,
        "seconds": seconds,
        "a_second": outcome.evaluated / seconds,
        "clock": outcome.clock.split(seconds),
        "data": task.batch.about,
        "input_shape": list(task.batch.input_shape),
        "batch_size": task.batch.size,
    }


def _options(method: str, given: list[str]) -> dict[str, Any]:
    """Options of the method, as values of their kinds; those that it does not have are refused by the search."""
    kinds = {name: type(default) for name, default in defaults_of(method).items()}
    found: dict[str, Any] = {}
    for name, text in map(pair, given):
        try:
            found[name] = kinds.get(name, str)(text)
        except ValueError:
            found[name] = text
    return found


class Progress:
    """Lines on standard error: how many, how long, and the best so far."""

    def __init__(self) -> None:
        self.said = time.perf_counter()

    def __call__(self, outcome: Outcome) -> None:
        if time.perf_counter() - self.said < EVERY:
            return
        self.said = time.perf_counter()
        about = outcome.note or outcome.headline
        print(f"{outcome.evaluated} networks in {outcome.seconds:.0f} s, {about}", file=sys.stderr, flush=True)


def main() -> None:
    """Search as the command line says."""
    found = hunt(options().parse_args())
    best = found["best"]
    print(f"{best['arch']}  {best['score']:.6g}  {best['params']:,} parameters  {best['flops']:,} multiply-accumulates")


if __name__ == "__main__":
    command(main)
