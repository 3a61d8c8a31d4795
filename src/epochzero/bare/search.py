"""Search a space by a proxy within limits, and write the result into one file.

    python -m epochzero.bare search --space mobilenet --method evolution_az --proxy dextr --max-flops 450M --budget 2000
        --batch-size 64 --device cuda --out mobilenet.json
    python -m epochzero.bare search --method nasi --space darts --budget 100 --data cifar10.npz --store nasi.db
        --out nasi.json

`epochzero search` does the same and more. The file has the best networks and their sizes, the size of the largest
network that was scored, and where the time went. With --store the same command resumes one that was stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from epochzero.bare import add_crew
from epochzero.engine.device import default_device, machine
from epochzero.engine.precision import set_precision
from epochzero.errors import UserError
from epochzero.executors import executor_of
from epochzero.files import write_json
from epochzero.objectives.auto import DEFAULT
from epochzero.progress import Lines
from epochzero.quantities import key_values, shape
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.store.database import MEMORY
from epochzero.strict import set_strict
from epochzero.study.result import INTERRUPTED, Result, nothing_found
from epochzero.study.search import SearchSettings, prepare
from epochzero.study.task import Task

TOP = 15
OWN = ("store", "out", "workers", "threads", "strict", "tf32", "option", "input_shape", "data_seed")
"""options that are not settings of the search, or are written differently"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--space", default="nb201")
    add("--method", help="default: evolution, or pareto for --objectives")
    add("--proxy", default=DEFAULT)
    add("--objectives", help="several at once in place of --proxy: dextr,-flops")
    add("--budget", "--steps", type=int, help="networks, or steps of nasi and zero_cost_pt; default: the method's own")
    add("--time-limit", type=float, help="seconds after which no further networks are evaluated")
    add("--max-params", help="most parameters: 1M")
    add("--max-flops", help="most multiply-accumulates: 450M")
    add("--among", type=Path, help="a table whose networks are the only candidates")
    add("--data", default="pink")
    add("--data-seed", type=int, help="default: --seed")
    add("--parts", type=int, help="batches of data; default: 4, or 100 for nasi and zero_cost_pt")
    add("--input-shape", help="of one sample of noise: 3,224,224")
    add("--batch-size", type=int, default=64)
    add("--init", default="default")
    add("--seed", type=int, default=0, help="draws weights, data and candidates")
    add("--device", default=default_device())
    add("--tf32", action="store_true", help="round factors to TF32 on a GPU, where that is known to keep the ranking")
    add_crew(parser)
    add("--option", action="append", default=[], help="of the method: key=value; may be repeated")
    add("--store", default=MEMORY, help="keeps scores and resumes (SQLite)")
    add("--out", type=Path, required=True, help="the result, a JSON file")


def search(asked: argparse.Namespace) -> dict[str, Any]:
    """Searches as asked, and writes the file; returns its content."""
    if asked.out.suffix != ".json":
        raise UserError(f"--out takes a name that ends with .json, not '{asked.out}'.")
    if asked.tf32 and asked.store != MEMORY:
        raise UserError(
            f"The store '{asked.store}' does not distinguish scores with TF32 from those in single precision: "
            "leave out --store or --tf32."
        )
    set_precision(asked.tf32)
    set_strict(asked.strict)
    settings = SearchSettings(
        **{name: value for name, value in vars(asked).items() if name not in OWN},
        data_seed=asked.seed if asked.data_seed is None else asked.data_seed,
        input_shape=shape(asked.input_shape),
        options=key_values(asked.option),
    )
    crew = executor_of(workers=asked.workers, threads=asked.threads, device=asked.device)
    lines = Lines("steps" if settings.method in ("nasi", "zero_cost_pt") else "networks")
    with crew as executor:
        prepared = prepare(settings, executor)
        if asked.tf32 and asked.device != "cpu":  # which always computes in single precision
            check_tf32(prepared.task)
        with Store.open(asked.store) as store:

            def show(result: Result) -> None:
                lines(result.steps or result.evaluated, None, result.note or result.headline)

            result = prepared.run(store, show, keep_interrupted=True)
    content = report(result, settings)
    content["machine"] = machine(asked.device) | {"workers": crew.workers}
    write_json(asked.out, content)
    if result.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return content


def check_tf32(task: Task) -> None:
    """UserError for proxies whose ranking may be another with TF32."""
    may_change = [proxy.text for proxy in task.proxies if not proxy.survives_tf32(task.space.name)]
    if may_change:
        raise UserError(
            f"Nothing measured says that the ranking of {task.space.name} by {', '.join(may_change)} survives TF32: "
            "leave out --tf32. A proxy's card has what is known."
        )


def report(result: Result, settings: SearchSettings) -> dict[str, Any]:
    """The content of the file: the best networks, the limits, and the largest network that was scored."""
    if result.best is None:
        raise nothing_found(result)
    task, seconds = result.task, result.seconds
    limits = Budget(result.limits.max_params, result.limits.max_flops)
    sizes = [task.size(arch) for arch in {step.text: step.arch for step in result.history}.values()]
    best = task.size(result.best.arch)
    content = {
        "space": task.space.name,
        "proxy": result.text,
        "method": result.method,
        "options": dict(settings.options),
        "seed": settings.seed,
        "best": {
            "arch": result.best.text,
            "score": result.best.score.value,
            "params": best.params,
            "flops": best.flops,
        },
        "top": [{"arch": one.text, "score": one.score.value} for one in result.top(TOP)],
        "limits": {"params": limits.max_params, "flops": limits.max_flops},
        "largest": {"params": max(size.params for size in sizes), "flops": max(size.flops for size in sizes)},
        "beyond": sum(not limits.fits(size) for size in sizes),
        "evaluated": result.evaluated,
        "stopped": result.stopped,
        "unscored": result.unscored,
        "seconds": seconds,
        "a_second": result.evaluated / seconds,
        "clock": result.clock.split(seconds),
        "data": task.batch.about,
        "input_shape": list(task.batch.input_shape),
        "batch_size": task.batch.size,
    }
    if result.front is not None:
        content["front"] = [{"arch": member.text, "scores": list(member.values)} for member in result.members]
    if result.inside is not None:
        inside = result.inside
        content |= {"arch": result.best.text, "steps": inside.steps}
        content |= {"weights": inside.weights, "trajectory": inside.trajectory}
    return content


def run(asked: argparse.Namespace) -> None:
    """Searches, and prints the best network."""
    best = search(asked)["best"]
    print(f"{best['arch']}  {best['score']:.6g}  {best['params']:,} parameters  {best['flops']:,} multiply-accumulates")
