"""A report of speed as JSON and as a table in Markdown, and how an interrupted one is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from epochzero.errors import UserError
from epochzero.files import write

Report = dict[str, Any]

SPENT = "the budget was spent"
"""why a row is left out that another run can measure"""
MAY_DIFFER = {"only", "ways", "budget", "row_seconds", "row_limit"}
"""settings that choose the rows and the time limit, and do not change what is measured"""


def begun(file: Path | None) -> Report | None:
    """The report of an earlier run, if there is one."""
    if file is None:
        raise UserError("--resume continues the report at --out: give that too.")
    try:
        report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        known = not report or {"machine", "settings", "rows", "equality", "left_out"} <= report.keys()
    except (ValueError, AttributeError):
        known = False
    if not known:
        raise UserError(f"'{file}' is not a report of speed: give another --out, or leave out --resume.")
    return report or None


def saver(
    out: Path | None,
    table: Path | None = None,
    before: Report | None = None,
    as_markdown: Callable[[Report], str] | None = None,
) -> Callable[[Report], None]:
    """A function that writes a report as JSON and as a table; a file that cannot be written is an error at once."""

    def save(report: Report) -> None:
        if out is not None:
            write(out, json.dumps(report, indent=1) + "\n")
        if table is not None:
            write(table, (as_markdown or markdown)(report) if report else "")

    save(before or {})
    return save


def continued(before: Report, fresh: Report, names: Collection[str], ways: Sequence[str]) -> Report:
    """The earlier report without incomplete rows: the ways asked for are compared, so they are measured in one run."""
    for part, ignored in (("machine", {"date"}), ("settings", MAY_DIFFER)):
        for key, value in fresh[part].items():
            if key not in ignored and before[part].get(key) != value:
                old = before[part].get(key)
                raise UserError(f"The report at --out has {key} {old!r}, and this run {value!r}: give another --out.")
    tried = [one for one in before["left_out"] if one["why"] != SPENT]
    known = {(one["name"], one["way"]) for one in [*before["rows"], *tried]}
    again = {name for name in names if not {(name, way) for way in ways} <= known}

    def stays(one: dict[str, Any]) -> bool:
        return one["name"] not in again or one["way"] not in ways

    return before | {
        "rows": list(filter(stays, before["rows"])),
        "equality": [one for one in before["equality"] if one["row"] not in again or "lockstep" not in ways],
        "left_out": list(filter(stays, tried)),
        "resumed": [*before.get("resumed", []), fresh["machine"]["date"]],
    }


def is_done(report: Report, name: str, ways: Sequence[str]) -> bool:
    """True for a row that was measured or tried before in all these ways."""
    tried = {one["way"] for one in [*report["rows"], *report["left_out"]] if one["name"] == name}
    return tried >= set(ways)


COLUMNS = (
    "one by one",
    "lockstep",
    "at a time",
    "processes",
    "gain",
    "floor",
    "times",
    "MiB",
    "worst error",
    "Spearman",
)


def markdown(report: Report) -> str:
    """A line about the setting, and a row for each proxy and bundle: milliseconds per network, gains, errors."""
    machine, settings = report["machine"], report["settings"]
    by_name: dict[str, dict[str, Any]] = {}
    for row in report["rows"]:
        by_name.setdefault(row["name"], {})[row["way"]] = row
    how = (
        f"{machine['device']}, {machine['cpus']} cores, torch {machine['torch']}, Python {machine['python']}, "
        f"EpochZero {machine['epochzero']}, {machine['date'][:10]}; {settings['space']}, batches of "
        f"{settings['batch_size']} of {Path(settings['data']).name}, seed {settings['seed']}, "
        f"{'TF32' if settings['tf32'] else 'single precision'}"
    )
    lines = [how, "", f"| | {' | '.join(COLUMNS)} |", f"|{'---|' * (len(COLUMNS) + 1)}"]
    for name, ways in by_name.items():
        lines.append(f"| {name} | {' | '.join(_cells(ways, [e for e in report['equality'] if e['row'] == name]))} |")
    return "\n".join([*lines, *(f"\n{sentence}" for sentence in left_out(report))]) + "\n"


def _cells(ways: dict[str, Any], equality: list[dict[str, Any]]) -> list[str]:
    alone, lockstep, processes = (ways.get(way, {}) for way in ("alone", "lockstep", "processes"))
    best = min((way["ms"] for way in (lockstep, processes) if way), default=None)
    gain = alone["ms"] / best if alone and best else None
    floor = next((way["floor"]["ms"] for way in ways.values() if way["floor"]), None)
    errors = [one["worst_relative_error"] for one in equality if one["worst_relative_error"] is not None]
    ranks = [one["spearman"] for one in equality if one["spearman"] is not None]
    return [
        number(alone.get("ms")),
        number(lockstep.get("ms")),
        number(lockstep.get("population")),
        number(processes.get("ms")),
        number(gain),
        number(floor),
        number(best / floor if best and floor else None),
        number(lockstep.get("peak_mib")),
        f"{max(errors):.0e}" if errors else "",
        f"{min(ranks):.4f}" if ranks else "",
    ]


def number(value: float | None) -> str:
    """Returns three digits, or a whole number; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def left_out(report: Report) -> list[str]:
    """A sentence for each reason why rows were not measured."""
    by_reason: dict[str, list[str]] = {}
    for one in report["left_out"]:
        by_reason.setdefault(one["why"], []).append(f"{one['name']} ({one['way']})")
    return [f"left out, {why}: {', '.join(rows)}" for why, rows in by_reason.items()]
