"""`epochzero search`: the main job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero import data as data_
from epochzero.cli.console import as_json, err, millions, out, print_json, progress_bar, score_json, score_table
from epochzero.cli.options import (
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Device,
    Init,
    Seed,
    SpaceName,
    StorePath,
    count,
    made_folder,
    options,
)
from epochzero.combine.objective import parse_objective
from epochzero.engine import Proxy, parse
from epochzero.errors import MachineError
from epochzero.registry import proxies, spaces
from epochzero.run.search import Outcome, run_search
from epochzero.run.task import Task
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.types import Origin, Score


def search(
    space: SpaceName = "nb201",
    proxy: Annotated[str, typer.Option("--proxy", help="What to search by; `epochzero list proxies`.")] = "dextr",
    method: Annotated[str, typer.Option("--method", help="How to search; `epochzero list searches`.")] = "evolution",
    budget: Annotated[int, typer.Option("--budget", help="Networks to evaluate.")] = 300,
    max_params: Annotated[str | None, typer.Option("--max-params", help="Most parameters: 1.5M.")] = None,
    max_flops: Annotated[str | None, typer.Option("--max-flops", help="Most multiply-accumulates: 450M.")] = None,
    data: DataSource = "pink",
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
    json: AsJson = False,
) -> None:
    """Search a space for the network that a proxy likes best, within a budget, before anything is trained.

    epochzero search --space nb201 --proxy dextr --budget 300 --max-params 1M --store run.db --out winner

    Stopped at any moment, the same command with the same store goes on where it was and ends as if undisturbed.
    """
    batch = data_.load(data, num_classes=classes, size=batch_size, seed=seed)
    objective = parse_objective(proxy)
    task = Task(spaces[space], objective.proxies, batch, Origin(init, seed), device)
    limits = Budget(count(max_params, "--max-params"), count(max_flops, "--max-flops"))
    folder = None if out_dir is None else made_folder(out_dir)
    with Store.open(store or ":memory:") as opened, progress_bar("search") as show:

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
        scores = _all_scores(outcome, opened)
    everything = [found for found in map(parse, scores) if scores[found.text].ok or found in objective.proxies]
    report = _report(outcome, everything, scores)
    if folder is not None:
        _write_winner(folder, outcome, report)
    if json:
        print_json(report)
    else:
        _show(outcome, everything, scores, store, folder)


def _all_scores(outcome: Outcome, store: Store) -> dict[str, Score]:
    """What every quick proxy says of the winner, kept in the store beside the search."""
    assert outcome.best is not None
    quick = [found for found in map(parse, proxies) if found.quick]
    asked = list({found.text: found for found in (*outcome.objective.proxies, *quick)}.values())
    task = replace(outcome.task, proxies=asked)
    run = store.begin_run("winner", {"search": outcome.run, "proxies": [found.text for found in asked]}, {})
    return task.evaluate([outcome.best.arch], store, run, 0)[0][0]


def _report(outcome: Outcome, everything: list[Proxy], scores: dict[str, Score]) -> dict[str, Any]:
    assert outcome.best is not None
    plan = outcome.plan
    return {
        "best": {
            "arch": outcome.best.text,
            "score": outcome.best.score.value,
            "params": plan.params,
            "flops": plan.flops,
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


def _show(
    outcome: Outcome, everything: list[Proxy], scores: dict[str, Score], store: Path | None, folder: Path | None
) -> None:
    assert outcome.best is not None
    plan, cell = outcome.plan, outcome.task.space.cell_block
    out.print(f"{outcome.best.text}\n", style="bold")
    out.print(plan.drawn(cell))
    out.print(f"params  {millions(plan.params)}")
    out.print(f"flops   {millions(plan.flops)} multiply-accumulates")
    out.print(f"data    {outcome.task.batch.about}\n")
    out.print(score_table(everything, scores))
    missing = sum(outcome.unscored.values())
    rest = outcome.seconds - outcome.scoring_seconds
    err.print(
        f"\n{outcome.evaluated} networks in {outcome.seconds:.1f} s ({outcome.scoring_seconds:.1f} s scoring, "
        f"{rest:.1f} s everything else), {missing} without a score"
    )
    for why, times in outcome.unscored.items():
        err.print(f"  {times} × {why}")
    if store is not None:
        err.print(f"scores  {store}")
    if folder is not None:
        err.print(f"winner  {folder}/cell.svg, network.svg, model.py, winner.json")


def _write_winner(folder: Path, outcome: Outcome, report: dict[str, Any]) -> None:
    plan = outcome.plan
    try:
        (folder / "cell.svg").write_text(plan.svg(outcome.task.space.cell_block), encoding="utf-8")
        (folder / "network.svg").write_text(plan.svg(), encoding="utf-8")
        (folder / "model.py").write_text(plan.code(), encoding="utf-8")
        (folder / "winner.json").write_text(as_json(report, indent=2), encoding="utf-8")
    except OSError as error:
        raise MachineError(f"The winner could not be written to '{folder}': {error.strerror}.") from error
