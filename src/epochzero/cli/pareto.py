"""What `epochzero search` shows and writes where it looks for several things at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epochzero.cli.console import as_json, counts, err, number, out, print_json
from epochzero.cli.winner import earlier_json, say_time
from epochzero.errors import MachineError, UserError
from epochzero.run import plots
from epochzero.run.front import Front, as_csv
from epochzero.run.front_plot import drawn
from epochzero.run.latency import LatencyLimit


def end_front(front: Front, limit: LatencyLimit | None, folder: Path | None, store: Path | None, json: bool) -> None:
    """Print the front and write it."""
    report = front_report(front)
    if limit is not None:
        report["latency"] = limit.about()
    files = [] if folder is None else write_front(folder, front, report)
    if json:
        print_json(report)
    else:
        show_front(front, report)
        say_time(front)
        if store is not None:
            err.print(f"scores  {store}", soft_wrap=True)
        if folder is not None:
            err.print(f"front   {folder}/{', '.join(files)}", soft_wrap=True)


def front_report(front: Front) -> dict[str, Any]:
    """The front and how it was found, as the JSON fields of a search."""
    goals = front.goals.goals
    return {
        "front": [
            {
                "arch": member.text,
                "scores": {goal.proxy.text: value for goal, value in zip(goals, member.values, strict=True)},
                **counts(front.task.size(member.arch)),
            }
            for member in front.members
        ],
        "objectives": [{"name": goal.proxy.text, "better": "higher" if goal.higher else "lower"} for goal in goals],
        "space": front.task.space.name,
        "evaluated": front.evaluated,
        "stopped": front.stopped,
        "unscored": sum(front.unscored.values()),
        "unscored_why": front.unscored,
        "seconds": front.seconds,
        "clock": front.clock.split(front.seconds),
        "earlier": earlier_json(front),
        "run": front.run,
    }


def show_front(front: Front, report: dict[str, Any]) -> None:
    """The front in columns, the best by the first objective first; architectures are for copying, and not broken."""
    goals = front.goals.goals
    sizes = [cost for cost in ("params", "flops") if cost not in {goal.proxy.text for goal in goals}]
    head = [*(f"{goal.proxy.text} {'↑' if goal.higher else '↓'}" for goal in goals), *sizes]
    lines = []
    for member, told in zip(front.members, report["front"], strict=True):
        counted = ("" if told[cost] is None else f"{told[cost]:,}" for cost in sizes)
        lines.append([*map(number, member.values), *counted])
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for cells, text in zip((head, *lines), ("arch", *(member.text for member in front.members)), strict=True):
        aligned = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        out.print(f"{aligned}  {text}", style="dim" if cells is head else None)
    err.print(f"\n{len(front.members)} of {front.evaluated} networks are beaten by no other in every objective.")


def write_front(folder: Path, front: Front, report: dict[str, Any]) -> list[str]:
    """The front as JSON, CSV and, with matplotlib, as a plot; the names of the files."""
    texts = {"front.json": as_json(report, indent=2), "front.csv": as_csv(front)}
    try:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        drawing = plots.save(drawn(front), folder, "front")
    except UserError as error:  # no matplotlib
        err.print(str(error), style="yellow")
        drawing = []
    except OSError as error:
        raise MachineError(f"The front could not be written to '{folder}': {error.strerror}.") from error
    return [*texts, *drawing]
