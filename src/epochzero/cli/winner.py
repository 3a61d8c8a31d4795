"""The winner of a search: scored, shown, drawn and written."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from epochzero.cli.console import (
    as_json,
    counted,
    counts,
    err,
    millions,
    number,
    out,
    print_json,
    progress_bar,
    score_json,
    score_table,
    with_interval,
)
from epochzero.engine import Proxy, parse
from epochzero.errors import MachineError, UserError
from epochzero.plan import Plan
from epochzero.plan.drawing import draw
from epochzero.registry import proxies
from epochzero.spaces.base import Space
from epochzero.store import Store
from epochzero.study.result import Outcome
from epochzero.study.sources import TableSource
from epochzero.study.task import Task
from epochzero.tables.columns import described
from epochzero.types import Score

LARGE = 2 * 10**10
"""multiply-accumulates of a batch beyond which the winner is not scored by every quick proxy, unless that is asked for:
on one busy core they took 22 to 27 s at 1.2 to 1.8e10"""


def winner_proxies(outcome: Outcome, which: str) -> list[Proxy]:
    """Those of the search, then every quick one that is wanted."""
    size = counts(outcome.task.size(outcome.winner.arch))["flops"]
    large = size is None or size * outcome.task.batch.size > LARGE
    free_alone = which == "auto" and (large or outcome.out_of_time)
    quick = (found for found in map(parse, proxies) if found.quick and (found.free or not free_alone))
    from_a_pool = any(source.candidates is not None for source in outcome.task.sources)
    more = () if which == "none" or from_a_pool else quick
    return list({found.text: found for found in (*outcome.objective.proxies, *more)}.values())


def scored_winner(outcome: Outcome, asked: list[Proxy], store: Store) -> tuple[dict[str, Score], float]:
    """What these proxies say of the winner, kept in the store, and how many seconds that took."""
    start = time.perf_counter()
    task = replace(outcome.task, proxies=asked)
    of = {"search": outcome.run, "arch": outcome.winner.text}  # a search that goes on may end with another one
    run = store.begin_run("winner", {**of, "proxies": [found.text for found in asked]}, {})
    with progress_bar("winner") as show:
        about = f"by {len(asked)} prox{'y' if len(asked) == 1 else 'ies'}"
        show(0, 1, about)
        scores = task.evaluate([outcome.winner.arch], store, run, 0)[0][0]
        show(1, 1, about)
    return scores, time.perf_counter() - start


def check_tower(task: Task, out_dir: Path | None) -> None:
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


def known_of(text: str, table: TableSource) -> dict[str, float] | None:
    """A network's accuracies by column; None where the table does not hold it."""
    if table.known(text) is None:
        return None
    named = [name for name in table.table.columns if described(name).quantity == "accuracy"]
    found = {name: table.value(text, name) for name in named}
    return {name: score.value for name, score in found.items() if score.ok}


def report_of(outcome: Outcome, everything: list[Proxy], scores: dict[str, Score], top: int) -> dict[str, Any]:
    best = outcome.winner
    return {
        "best": {
            "arch": best.text,
            "score": best.score.value,
            **counts(outcome.task.size(best.arch)),
            "scores": {proxy.text: score_json(proxy, scores[proxy.text]) for proxy in everything},
        },
        "top": [{"arch": one.text, "score": one.score.value} for one in outcome.top(top)],
        "space": outcome.task.space.name,
        "proxy": outcome.objective.text,
        "evaluated": outcome.evaluated,
        "from_store": outcome.recalled,
        "stopped": outcome.stopped,
        "unscored": sum(outcome.unscored.values()),
        "unscored_why": outcome.unscored,
        "seconds": outcome.seconds,
        "scoring_seconds": outcome.scoring_seconds,
        "clock": outcome.clock.split(outcome.seconds),
        "earlier": earlier_json(outcome),
        "run": outcome.run,
        "data": _data(outcome),
    }


def earlier_json(outcome: Outcome) -> dict[str, float]:
    """What earlier sittings of the same search did, which is not in its seconds."""
    return dict(zip(("evaluated", "scoring_seconds"), outcome.earlier, strict=True))


def _data(outcome: Outcome) -> str:
    pools = [source.name for source in outcome.task.sources if source.candidates is not None]
    return f"the scores in {pools[0]}" if pools else outcome.task.batch.about


def end_search(
    outcome: Outcome,
    scores: dict[str, Score],
    more: Mapping[str, Any],
    *,
    top: int,
    auxiliary: bool,
    folder: Path | None,
    store: Path | None,
    json: bool,
) -> None:
    """Print the winner with its scores and write its files."""
    named = {found.text: found for found in (*outcome.objective.proxies, *map(parse, proxies))}
    everything = [named[text] for text in scores if scores[text].ok or named[text] in outcome.objective.proxies]
    report = report_of(outcome, everything, scores, top) | dict(more)
    files = files_of(outcome, report, auxiliary)
    if folder is not None:
        write_winner(folder, files)
    if json:
        print_json(report)
        return
    show(outcome, report, score_table(everything, scores))
    say_places(outcome.task.space.name, store, folder, list(files))


def show(outcome: Outcome, report: dict[str, Any], scores: Table) -> None:
    best, space = report["best"], outcome.task.space
    out.print(f"{best['arch']}\n", style="bold")
    out.print(draw.text(outcome.plan, space.cell_block) if isinstance(space, Space) else f"{outcome.module()}\n")
    out.print(f"params  {millions(best['params'])}")
    out.print(f"flops   {millions(best['flops'])} multiply-accumulates")
    if "latency" in report:
        told = report["latency"]
        out.print(f"latency {with_interval(told['best'])} ms, by {told['told_by']}")
    out.print(f"data    {report['data']}\n")
    out.print(scores)
    if report.get("known"):
        show_known(report["known"], report["table"])
    if len(report["top"]) > 1:
        out.print()
        for place, one in enumerate(report["top"], start=1):
            out.print(f"{place:3}  {number(one['score'])}  {one['arch']}")
    if "known" in report and report["known"] is None:
        err.print("The accuracy table does not hold the winner: nothing is known of its accuracy.", style="yellow")
    say_time(outcome, report["winner_seconds"])


def show_known(known: Mapping[str, float], table: str) -> None:
    """The winner's accuracies and where they are from."""
    out.print(f"\naccuracy of the winner in {table}", style="dim")
    width = max(map(len, known))
    for column, value in known.items():
        out.print(f"{column:{width}}  {number(value)}")


def say_time(outcome: Outcome, winner_seconds: float | None = None) -> None:
    """How many networks or steps, where the time went, and which networks have no score."""
    did = counted(outcome.steps, "step") if outcome.steps else counted(outcome.evaluated, "network")
    said = [f"{did} in {outcome.seconds:.1f} s"]
    if outcome.recalled:
        said.append(f"{outcome.recalled:,} read from the store")
    err.print(f"\n{', '.join(said)}, {sum(outcome.unscored.values())} without a score")
    parts = outcome.clock.split(outcome.seconds).items()
    err.print("  " + ", ".join(f"{part} {seconds:.1f} s" for part, seconds in parts))
    if winner_seconds is not None:
        err.print(f"  the winner's table took {winner_seconds:.1f} s more")
    before, seconds = outcome.earlier
    if before:
        old = min(before, outcome.evaluated)
        err.print(f"{old} of them were looked at in an earlier sitting; its scores took {seconds:.1f} s.")
    if outcome.stopped:
        err.print(f"It ended early: {outcome.stopped}.", style="yellow")
    for remark in outcome.remarks:
        err.print(remark, style="yellow")
    for why, times in outcome.unscored.items():
        err.print(f"  {times} × {why}")


def say_places(space: str, store: Path | None, folder: Path | None, files: list[str]) -> None:
    """Where things were written."""
    if store is not None:
        err.print(f"scores  {store}", soft_wrap=True)
    if folder is not None:
        err.print(f"winner  {folder}/{', '.join(files)}", soft_wrap=True)
        if "model.py" not in files:
            err.print(f"        {space} gives modules: no drawing, no printed code")


def files_of(outcome: Outcome, report: dict[str, Any], auxiliary: bool) -> dict[str, Callable[[], str]]:
    """What can be written of the winner: of a plan its drawings and code, of a module the list of its layers."""
    facts = {"winner.json": lambda: as_json(report, indent=2)}
    space = outcome.task.space
    if not isinstance(space, Space):
        return {"layers.txt": lambda: f"{outcome.module()}\n"} | facts
    plan, cell = outcome.plan, space.cell_block
    code = _with_tower(outcome.task, outcome.winner.arch).code if auxiliary else plan.code
    return {"cell.svg": lambda: draw.svg(plan, cell), "network.svg": plan.svg, "model.py": code} | facts


def write_winner(folder: Path, files: Mapping[str, Callable[[], str]]) -> None:
    try:
        for name, content in files.items():
            (folder / name).write_text(content(), encoding="utf-8")
    except OSError as error:
        raise MachineError(f"The winner could not be written to '{folder}': {error.strerror}.") from error
