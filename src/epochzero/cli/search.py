"""`epochzero search`: the main job."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from epochzero.cli.console import as_json, counts, err, millions, out, print_json, progress_bar, score_json, score_table
from epochzero.cli.options import (
    Address,
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Device,
    ExecutorName,
    Gpus,
    Init,
    InputShape,
    Plugins,
    Seed,
    SpaceName,
    StorePath,
    Threads,
    Workers,
    count,
    made_folder,
    options,
    shape,
)
from epochzero.cli.options import (
    executor as executor_,
)
from epochzero.cli.plugin import load_plugins
from epochzero.combine.objective import parse_objective
from epochzero.engine import Proxy, parse
from epochzero.errors import MachineError, UserError
from epochzero.plan import Plan, draw
from epochzero.registry import proxies, spaces
from epochzero.run.network import batch_for
from epochzero.run.search import Outcome, run_search
from epochzero.run.task import Task
from epochzero.spaces.base import Space
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.types import Origin, Score

LARGE = 2 * 10**10
"""multiply-accumulates of a batch beyond which the winner is not scored by every quick proxy, unless that is asked for:
on one busy core they took 22 to 27 s at 1.2 to 1.8e10"""


def search(
    space: SpaceName = "nb201",
    proxy: Annotated[str, typer.Option("--proxy", help="What to search by; `epochzero list proxies`.")] = "dextr",
    method: Annotated[str, typer.Option("--method", help="How to search; `epochzero list searches`.")] = "evolution",
    budget: Annotated[int, typer.Option("--budget", help="Networks to evaluate.")] = 300,
    max_params: Annotated[str | None, typer.Option("--max-params", help="Most parameters: 1.5M.")] = None,
    max_flops: Annotated[str | None, typer.Option("--max-flops", help="Most multiply-accumulates: 450M.")] = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of the method: population=100. May be repeated."),
    ] = None,
    store: StorePath = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the winner's drawing, code and facts.")
    ] = None,
    auxiliary: Annotated[
        bool, typer.Option("--auxiliary", help="Give model.py the auxiliary tower of a DARTS network, for training.")
    ] = False,
    winner_scores: Annotated[
        str,
        typer.Option(
            "--winner-scores",
            help="What scores the winner beside --proxy: none, all quick proxies, or auto: all, but of a large winner "
            "those alone that need no run.",
        ),
    ] = "auto",
    executor: ExecutorName = "local",
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
    gpus: Gpus = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Search a space for the network that a proxy likes best, within a budget, before anything is trained.

    epochzero search --space nb201 --proxy dextr --budget 300 --max-params 1M --store run.db --out winner

    Stopped at any moment, the same command with the same store goes on where it was and ends as if undisturbed.
    The winner is scored by every quick proxy; a large one by those alone that need no run, unless --winner-scores all.
    """
    load_plugins(plugin)
    if winner_scores not in ("auto", "all", "none"):
        raise UserError(f"--winner-scores takes auto, all or none, not {winner_scores!r}.")
    batch = batch_for(
        spaces[space], data, input_shape=shape(input_shape), num_classes=classes, size=batch_size, seed=seed
    )
    objective = parse_objective(proxy)
    crew = executor_(executor, workers, threads, address, gpus, device, plugin)
    task = Task(spaces[space], objective.proxies, batch, Origin(init, seed), device, crew)
    limits = Budget(count(max_params, "--max-params"), count(max_flops, "--max-flops"))
    if auxiliary:
        _check_tower(task, out_dir)
    folder = None if out_dir is None else made_folder(out_dir)
    with crew, Store.open(store or ":memory:") as opened:
        with progress_bar("search") as show:

            def update(outcome: Outcome) -> None:
                best = "" if outcome.best is None else f"best {outcome.best.score.value:.4g}"
                show(outcome.evaluated, budget, best)

            outcome = run_search(
                task,
                method,
                budget,
                seed=seed,
                objective=objective,
                budget=limits,
                options=options(option or []),
                store=opened,
                progress=update,
            )
        if outcome.best is None:
            reason = max(outcome.unscored, key=lambda why: outcome.unscored[why])
            raise MachineError(f"None of the {outcome.evaluated} networks has a {proxy} score; most often: {reason}")
        asked = _winner_proxies(outcome, winner_scores)
        scores, winner_seconds = _scored_winner(outcome, asked, opened)
    everything = [found for found in map(parse, scores) if scores[found.text].ok or found in objective.proxies]
    report = _report(outcome, everything, scores) | {"winner_seconds": winner_seconds}
    files = _files(outcome, report, auxiliary)
    if folder is not None:
        _write_winner(folder, files)
    if json:
        print_json(report)
        return
    _show(outcome, report, score_table(everything, scores))
    if store is not None:
        err.print(f"scores  {store}", soft_wrap=True)
    if folder is not None:
        err.print(f"winner  {folder}/{', '.join(files)}", soft_wrap=True)
        if "model.py" not in files:
            err.print(f"        {space} gives modules: no drawing, no printed code")


def _winner_proxies(outcome: Outcome, which: str) -> list[Proxy]:
    """Those of the search, then every quick one that is wanted."""
    size = counts(outcome.task.size(outcome.winner.arch))["flops"]
    large = size is None or size * outcome.task.batch.size > LARGE
    free_alone = which == "auto" and large
    quick = (found for found in map(parse, proxies) if found.quick and (found.free or not free_alone))
    more = () if which == "none" else quick
    return list({found.text: found for found in (*outcome.objective.proxies, *more)}.values())


def _scored_winner(outcome: Outcome, asked: list[Proxy], store: Store) -> tuple[dict[str, Score], float]:
    """What these proxies say of the winner, kept in the store, and how many seconds that took."""
    start = time.perf_counter()
    task = replace(outcome.task, proxies=asked)
    run = store.begin_run("winner", {"search": outcome.run, "proxies": [found.text for found in asked]}, {})
    with progress_bar("winner") as show:
        show(0, 1, f"by {len(asked)} proxies")
        scores = task.evaluate([outcome.winner.arch], store, run, 0)[0][0]
        show(1, 1, f"by {len(asked)} proxies")
    return scores, time.perf_counter() - start


def _check_tower(task: Task, out_dir: Path | None) -> None:
    """UserError, before anything is searched, where there will be no code with an auxiliary tower."""
    if out_dir is None:
        raise UserError("--auxiliary is about the winner's model.py: say with --out where to write it.")
    _with_tower(task, task.space.smallest())


def _with_tower(task: Task, arch: Any) -> Plan:
    """The network with its auxiliary tower."""
    space, batch = task.space, task.batch
    if not isinstance(space, Space) or "auxiliary" not in inspect.signature(space.plan).parameters:
        raise UserError(f"The networks of {space.name} have no auxiliary tower: search without --auxiliary.")
    plan: Callable[..., Plan] = space.plan
    return plan(arch, batch.num_classes, batch.input_shape, auxiliary=True)


def _report(outcome: Outcome, everything: list[Proxy], scores: dict[str, Score]) -> dict[str, Any]:
    best = outcome.winner
    return {
        "best": {
            "arch": best.text,
            "score": best.score.value,
            **counts(outcome.task.size(best.arch)),
            "scores": {proxy.text: score_json(proxy, scores[proxy.text]) for proxy in everything},
        },
        "space": outcome.task.space.name,
        "proxy": outcome.objective.text,
        "evaluated": outcome.evaluated,
        "unscored": sum(outcome.unscored.values()),
        "unscored_why": outcome.unscored,
        "seconds": outcome.seconds,
        "scoring_seconds": outcome.scoring_seconds,
        "run": outcome.run,
        "data": outcome.task.batch.about,
    }


def _show(outcome: Outcome, report: dict[str, Any], scores: Table) -> None:
    best, space = report["best"], outcome.task.space
    out.print(f"{best['arch']}\n", style="bold")
    out.print(draw.text(outcome.plan, space.cell_block) if isinstance(space, Space) else f"{outcome.module()}\n")
    out.print(f"params  {millions(best['params'])}")
    out.print(f"flops   {millions(best['flops'])} multiply-accumulates")
    out.print(f"data    {outcome.task.batch.about}\n")
    out.print(scores)
    missing = sum(outcome.unscored.values())
    rest = outcome.seconds - outcome.scoring_seconds
    err.print(
        f"\n{outcome.evaluated} networks in {outcome.seconds:.1f} s ({outcome.scoring_seconds:.1f} s scoring, "
        f"{rest:.1f} s everything else), {missing} without a score; the winner's table took "
        f"{report['winner_seconds']:.1f} s"
    )
    for why, times in outcome.unscored.items():
        err.print(f"  {times} × {why}")


def _files(outcome: Outcome, report: dict[str, Any], auxiliary: bool) -> dict[str, Callable[[], str]]:
    """What can be written of the winner: of a plan its drawings and code, of a module the list of its layers."""
    facts = {"winner.json": lambda: as_json(report, indent=2)}
    space = outcome.task.space
    if not isinstance(space, Space):
        return {"layers.txt": lambda: f"{outcome.module()}\n"} | facts
    plan, cell = outcome.plan, space.cell_block
    code = _with_tower(outcome.task, outcome.winner.arch).code if auxiliary else plan.code
    return {"cell.svg": lambda: draw.svg(plan, cell), "network.svg": plan.svg, "model.py": code} | facts


def _write_winner(folder: Path, files: Mapping[str, Callable[[], str]]) -> None:
    try:
        for name, content in files.items():
            (folder / name).write_text(content(), encoding="utf-8")
    except OSError as error:
        raise MachineError(f"The winner could not be written to '{folder}': {error.strerror}.") from error
