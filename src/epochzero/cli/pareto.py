"""The front of `epochzero search --objectives`, shown and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epochzero.cli.console import as_json, counted, counts, err, number, out, print_aligned, print_json, with_interval
from epochzero.cli.winner import course_json, known_of, say_next, say_places, say_time
from epochzero.errors import UserError
from epochzero.evaluate.front_plot import drawn
from epochzero.files import writing
from epochzero.hardware.latency import KEYS, Latency, latency_source
from epochzero.hardware.timing import RUNS, Timing
from epochzero.objectives.goals import LATENCY
from epochzero.pictures import save
from epochzero.study.front import Member, as_csv
from epochzero.study.result import Result
from epochzero.study.sources import TableSource

FIELDS = ("median_ms", "low_ms", "high_ms")
"""of a latency in JSON, as KEYS are its columns"""
SHOWN = 3
"""columns of accuracies that are printed; all are written"""


def end_front(result: Result, folder: Path | None, store: Path | None, json: bool, data: str) -> None:
    """Prints the front and writes it, with latencies and known accuracies if there are any."""
    latency = latency_source(result.task, result.limit)
    report = front_report(result, latency, result.accuracies)
    if latency is not None:
        report["latency"] = latency.facts if not (result.limit and result.limit.unit) else result.limit.about()
    files = [] if folder is None else write_front(folder, result, report)
    if json:
        print_json(report)
    else:
        show_front(result, report)
        say_time(result, report["trust"])
        say_places("front", store, folder, files)
        say_next(result, store, data)


def front_report(result: Result, latency: Latency | None, table: TableSource | None) -> dict[str, Any]:
    """The front and how it was found, as the JSON fields of a search."""
    goals = result.goals.goals
    members = [_member_json(result, member, latency, table) for member in result.members]
    known = {} if table is None else {"table": table.name, "not_held": sum(one["known"] is None for one in members)}
    return {
        "front": members,
        "objectives": [{"name": goal.proxy.text, "better": "higher" if goal.higher else "lower"} for goal in goals],
        **course_json(result),
        **known,
    }


def _member_json(result: Result, member: Member, latency: Latency | None, table: TableSource | None) -> dict[str, Any]:
    names = [goal.proxy.text for goal in result.goals.goals]
    facts: dict[str, Any] = {
        "arch": member.text,
        "scores": dict(zip(names, member.values, strict=True)),
        **counts(result.task.size(member.arch)),
    }
    if latency is not None:
        timing = latency.of(member.arch)
        facts["latency"] = timing.facts if isinstance(timing, Timing) else None
    if table is not None:
        facts["known"] = known_of(member.text, table)
    return facts


def show_front(result: Result, report: dict[str, Any]) -> None:
    """The front in columns, the best by the first objective first; architectures are for copying, and not broken."""
    columns = _printed(report)
    rows = zip(zip(*columns.values(), strict=True), report["front"], strict=True)
    print_aligned([(tuple(columns), " arch", "dim"), *((cells, f" {one['arch']}", "") for cells, one in rows)])
    if "latency" in report:
        measured = "runs" in report["latency"]
        how = f"; milliseconds, medians of {RUNS} runs with 95 % intervals" if measured else ""
        out.print(f"latency: {report['latency']['told_by']}{how}")
    if "table" in report:
        _say_known(report)
    verb = "is" if len(result.members) == 1 else "are"
    of_all = f"{len(result.members)} of {counted(result.evaluated, 'network')}"
    err.print(f"\n{of_all} {verb} beaten by no other in every objective.")


def _printed(report: dict[str, Any]) -> dict[str, list[str]]:
    """The cells of the front by the heads of their columns."""
    members, columns = report["front"], {}
    for goal in report["objectives"]:
        name, arrow = goal["name"], "↑" if goal["better"] == "higher" else "↓"
        columns[f"{name} {arrow}"] = [
            with_interval(one["latency"]) if name == LATENCY.name and one["latency"] else number(one["scores"][name])
            for one in members
        ]
    for cost in ("params", "flops"):
        if cost not in members[0]["scores"]:
            columns[cost] = ["" if one[cost] is None else f"{one[cost]:,}" for one in members]
    if LATENCY.name in members[0] and LATENCY.name not in members[0]["scores"]:
        columns[LATENCY.name] = [with_interval(one["latency"]) if one["latency"] else "" for one in members]
    for name, values in list(_known(report).items())[:SHOWN]:
        columns[name] = ["" if value is None else number(value) for value in values]
    return columns


def _known(report: dict[str, Any]) -> dict[str, list[float | None]]:
    """The accuracies that a table knows, by column; None where it knows none."""
    rows = [one.get("known") or {} for one in report["front"]]
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _say_known(report: dict[str, Any]) -> None:
    """Whose accuracies are shown, and how many networks lack them."""
    columns, all_, lacking = len(_known(report)), len(report["front"]), report["not_held"]
    more = f"; {SHOWN} of {columns} columns are shown, --json and --out have all" if columns > SHOWN else ""
    out.print(f"accuracies: {report['table']}, which holds {all_ - lacking} of {counted(all_, 'network')}{more}")


def _more_columns(report: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns besides the objectives: latencies with their source, and known accuracies."""
    columns: dict[str, list[Any]] = {}
    if "latency" in report:
        timings = [one["latency"] or {} for one in report["front"]]
        columns = {key: [timing.get(field) for timing in timings] for key, field in zip(KEYS, FIELDS, strict=True)}
        columns["latency_told_by"] = [report["latency"]["told_by"]] * len(timings)
        if LATENCY.name in report["front"][0]["scores"]:
            del columns[LATENCY.name]
    return columns | _known(report)


def write_front(folder: Path, result: Result, report: dict[str, Any]) -> list[str]:
    """The front as JSON, CSV and, with matplotlib, as a plot; the names of the files."""
    texts = {"front.json": as_json(report, indent=2), "front.csv": as_csv(result.the_front, _more_columns(report))}
    with writing("front", folder):
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        try:
            return [*texts, *save(drawn(result.the_front), folder, "front")]
        except UserError as error:  # no matplotlib
            err.print(str(error), style="yellow")
            return [*texts]
