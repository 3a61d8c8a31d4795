"""The winner of a search: scored, shown, drawn and written."""

from __future__ import annotations

import inspect
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
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
from epochzero.evaluate.trust import trust_in_search
from epochzero.files import writing
from epochzero.objectives.objective import looked_up, percentiles
from epochzero.plan import Plan
from epochzero.plan.drawing import draw
from epochzero.registry import proxies
from epochzero.spaces.base import Space
from epochzero.store import Store
from epochzero.study.result import INTERRUPTED, Result, nothing_found
from epochzero.study.sources import UNHELD, TableSource
from epochzero.study.task import Task
from epochzero.study.winners import train_command
from epochzero.tables.columns import described
from epochzero.types import WIDTH, Score

LARGE = 2 * 10**10
"""multiply-accumulates of a batch beyond which the winner is not scored by every quick proxy, unless that is asked for:
on one busy core they took 22 to 27 s at 1.2 to 1.8e10"""


def check_winner(objectives: str | None, scores: str, given: Mapping[str, object]) -> None:
    """UserError for options about one winner that are wrong, or that mean nothing for a front."""
    if scores not in ("auto", "all", "none"):
        raise UserError(f"--winner-scores takes auto, all or none, not {scores!r}.")
    for option, value in {**given, "--winner-scores": scores if scores == "all" else None}.items():
        if objectives is not None and value is not None:
            raise UserError(f"{option} is about one winner, and --objectives gives a whole front: leave out {option}.")


def no_score(result: Result, table: Path | None) -> UserError | MachineError:
    """The error for a search without a winner; where a table holds too few of the networks, with a remedy."""
    error = nothing_found(result)
    if table is None or UNHELD not in str(error):
        return error
    return MachineError(f"{error}. --pool {table} searches among its networks only.")


def winner_proxies(result: Result, which: str) -> list[Proxy]:
    """Those of the search, then every quick one that is wanted."""
    if which == "none" or _from_a_pool(result):
        return list(result.objective.proxies)
    size = counts(result.task.size(result.winner.arch))["flops"]
    large = size is None or size * result.task.batch.size > LARGE
    free_alone = which == "auto" and (large or result.out_of_time)
    quick = (proxy for proxy in map(parse, proxies) if proxy.quick and (proxy.free or not free_alone))
    return list({proxy.text: proxy for proxy in (*result.objective.proxies, *quick)}.values())


def _from_a_pool(result: Result) -> bool:
    return any(source.candidates is not None for source in result.task.sources)


def scored_winner(result: Result, asked: list[Proxy], store: Store) -> tuple[dict[str, Score], float]:
    """The winner's scores by these proxies, kept in the store, and how many seconds they took."""
    start = time.perf_counter()
    task = replace(result.task, proxies=asked)
    of = {"search": result.run, "arch": result.winner.text}  # a resumed search may end with another one
    run = store.begin_run("winner", {**of, "proxies": [proxy.text for proxy in asked]}, {})
    with progress_bar("winner") as show:
        about = f"by {len(asked)} prox{'y' if len(asked) == 1 else 'ies'}"
        show(0, 1, about)
        scores = task.evaluate([result.winner.arch], store, run, 0)[0][0]
        show(1, 1, about)
    run.finish({"arch": result.winner.text})
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
    accuracies = {name: table.value(text, name) for name in named}
    return {name: score.value for name, score in accuracies.items() if score.ok}


def report_of(result: Result, everything: list[Proxy], scores: dict[str, Score], top: int) -> dict[str, Any]:
    best = result.winner
    pools = [source.name for source in result.task.sources if source.candidates is not None]
    return {
        "best": {
            "arch": best.text,
            "score": best.score.value,
            **counts(result.task.size(best.arch)),
            "memory": _memory(result),
            "scores": {proxy.text: score_json(proxy, scores[proxy.text]) for proxy in everything},
        },
        "top": [{"arch": one.text, "score": one.score.value} for one in result.top(top)],
        **course_json(result),
        "proxy": result.objective.text,
        "scoring_seconds": result.scoring_seconds,
        "data": f"the scores in {pools[0]}" if pools else result.task.batch.about,
    }


def _memory(result: Result) -> dict[str, int] | None:
    """The winner's memory as JSON fields, for numbers of the budget's width."""
    memory, width = result.task.memory(result.winner.arch), result.limits.byte_width
    return None if memory is None else memory.facts(width) | {"byte_width": width}


def course_json(result: Result) -> dict[str, Any]:
    """The course of a search as JSON fields; `earlier` is the work of earlier runs, which its seconds leave out."""
    return {
        "space": result.task.space.name,
        "evaluated": result.evaluated,
        "from_store": result.recalled,
        "stopped": result.stopped,
        "remarks": result.remarks,
        "unscored": sum(result.unscored.values()),
        "unscored_why": result.unscored,
        "seconds": result.seconds,
        "clock": result.clock.split(result.seconds),
        "earlier": dict(zip(("evaluated", "scoring_seconds"), result.earlier, strict=True)),
        "run": result.run,
        "trust": trust_in_search(result),
    }


def end_search(result: Result, store: Store, which: str, folder: Path | None, output: Any, data: str) -> None:
    """Prints the winner with its scores, or the front, and writes the files; `output` and `data` are the options."""
    if result.front is not None:
        from epochzero.cli.pareto import end_front

        end_front(result, folder, output.store, output.json, data)
        return
    asked = winner_proxies(result, "none" if result.stopped == INTERRUPTED else which)
    if len(asked) > len(result.objective.proxies):
        scores, seconds = scored_winner(result, asked, store)
    else:
        scores, seconds = result.task.evaluate([result.winner.arch], store, None, 0)[0][0], 0.0
    everything = [proxy for proxy in asked if scores[proxy.text].ok or proxy in result.objective.proxies]
    if result.objective.made_of:
        scores = percentiles(result.objective.text, scores, result.task.space.name, result.task.batch.input_shape)
        everything.insert(0, looked_up(result.objective.text))
    report = report_of(result, everything, scores, output.top or 1) | {"winner_seconds": seconds}
    if result.inside is not None:
        report |= {"steps": result.steps, "weights": result.inside.weights}
    if result.limit is not None:
        report |= result.limit.report(result.winner.arch)
    if result.accuracies is not None:
        report |= {"known": known_of(result.winner.text, result.accuracies), "table": result.accuracies.name}
    files = {} if folder is None else files_of(result, report, output.auxiliary)
    if folder is not None:
        with writing("winner", folder):
            for name, content in files.items():
                (folder / name).write_text(content(), encoding="utf-8")
    if output.json:
        print_json(report)
        return
    show(result, report, score_table(everything, scores))
    say_places("winner", output.store, folder, files)
    if folder is not None and "model.py" not in files:
        err.print(f"        {result.task.space.name} gives modules: no drawing, no printed code")
    say_next(result, output.store, data, more=which == "none" and not _from_a_pool(result))


def show(result: Result, report: dict[str, Any], scores: Table) -> None:
    best, space = report["best"], result.task.space
    out.print(f"{best['arch']}\n", style="bold")
    out.print(draw.text(result.plan, space.cell_block) if isinstance(space, Space) else f"{result.module()}\n")
    out.print(f"params  {millions(best['params'])}")
    out.print(f"flops   {millions(best['flops'])} multiply-accumulates")
    if memory := best["memory"]:
        parts = f"{memory['weight_bytes']:,} of weights, {memory['activation_bytes']:,} of activations"
        wide = "" if memory["byte_width"] == WIDTH else f", {counted(memory['byte_width'], 'byte')} a number"
        out.print(f"memory  {memory['peak_memory']:,} bytes for one sample: {parts}{wide}")
    if "latency" in report:
        latency = report["latency"]
        many = latency.get("batch") or 1
        rate = f" ({1e3 * many / latency['best']['median_ms']:,.0f} samples a second in batches of {many})"
        rate = rate if many > 1 else ""
        out.print(f"latency {with_interval(latency['best'])} ms{rate}, by {latency['told_by']}")
    if "energy" in report:
        out.print(f"energy  {number(report['energy']['value'])}, by {report['energy']['column']}")
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
    say_time(result, report["trust"], report["winner_seconds"])


def show_known(known: Mapping[str, float], table: str) -> None:
    """The winner's accuracies and where they are from."""
    out.print(f"\naccuracy of the winner in {table}", style="dim")
    width = max(map(len, known))
    for column, value in known.items():
        out.print(f"{column:{width}}  {number(value)}")


def say_time(result: Result, trust: str, winner_seconds: float = 0.0) -> None:
    """Prints the number of networks or steps, the time by part, and why networks have no score."""
    did = counted(result.steps, "step") if result.steps else counted(result.evaluated, "network")
    said = [f"{did} in {result.seconds:.1f} s"]
    if result.recalled:
        said.append(f"{result.recalled:,} read from the store")
    err.print(f"\n{', '.join(said)}, {sum(result.unscored.values())} without a score")
    parts = result.clock.split(result.seconds).items()
    err.print("  " + ", ".join(f"{part} {seconds:.1f} s" for part, seconds in parts))
    if winner_seconds:
        err.print(f"  the winner's table took {winner_seconds:.1f} s more")
    before, seconds = result.earlier
    if before:
        old = min(before, result.evaluated)
        err.print(f"{old} of them were evaluated in an earlier run; their scores took {seconds:.1f} s.")
    if result.stopped:
        err.print(f"It ended early: {result.stopped}.", style="yellow")
    for remark in result.remarks:
        err.print(remark, style="yellow")
    for why, times in result.unscored.items():
        err.print(f"  {times} × {why}")
    if trust:
        err.print(trust, soft_wrap=True)


def say_places(what: str, store: Path | None, folder: Path | None, files: Iterable[str]) -> None:
    """Where things were written."""
    if store is not None:
        err.print(f"scores  {store}", soft_wrap=True)
    if folder is not None:
        err.print(f"{what:7} {folder}/{', '.join(files)}", soft_wrap=True)


def say_next(result: Result, store: Path | None, data: str, more: bool = False) -> None:
    """The commands that follow a finished search on these data; `more`: the winner has further scores."""
    if result.stopped == INTERRUPTED:
        return
    name = shlex.quote(str(store))
    commands = [f"epochzero report {name} --out report.html"] if store else ["the same with --store run.db keeps it"]
    commands += [train_command(store, data, result.task.batch.input_shape)] if store else []
    commands += ["the same with --winner-scores all scores the winner by every quick proxy"] if more else []
    for place, command in enumerate(commands):
        err.print(f"{'' if place else 'next':7} {command}", soft_wrap=True, no_wrap=True)


def files_of(result: Result, report: dict[str, Any], auxiliary: bool) -> dict[str, Callable[[], str]]:
    """The files about the winner: drawings and code of a plan, or the list of a module's layers."""
    facts = {"winner.json": lambda: as_json(report, indent=2)}
    space = result.task.space
    if not isinstance(space, Space):
        return {"layers.txt": lambda: f"{result.module()}\n"} | facts
    plan, cell = result.plan, space.cell_block
    code = _with_tower(result.task, result.winner.arch).code if auxiliary else plan.code
    return {"cell.svg": lambda: draw.svg(plan, cell), "network.svg": plan.svg, "model.py": code} | facts
