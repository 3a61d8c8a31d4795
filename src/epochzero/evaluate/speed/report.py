"""A report of speed: going on with one that time cut short, and its table in Markdown."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from epochzero.errors import UserError

Report = dict[str, Any]

SPENT = "the budget was spent"
"""why a row is left out that another run can measure"""
MAY_DIFFER = {"only", "ways", "budget", "row_seconds"}
"""settings that say which rows are measured and for how long, not what"""


def begun(file: Path | None) -> Report | None:
    """The report of an earlier run, where there is one."""
    if file is None:
        raise UserError("--resume goes on with the report at --out: give that too.")
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        known = not found or {"machine", "settings", "rows", "equality", "left_out"} <= found.keys()
    except (ValueError, AttributeError):
        known = False
    if not known:
        raise UserError(f"'{file}' is no report of speed: give another --out, or leave --resume away.")
    return found or None


def continued(before: Report, fresh: Report, names: Collection[str], ways: Sequence[str]) -> Report:
    """The earlier report without what it lacks in part: a row's ways are compared, so they are measured in one run."""
    for part, ignored in (("machine", {"date"}), ("settings", MAY_DIFFER)):
        for key, value in fresh[part].items():
            if key not in ignored and before[part].get(key) != value:
                old = before[part].get(key)
                raise UserError(f"The report at --out has {key} {old!r}, and this run {value!r}: give another --out.")
    tried = [one for one in before["left_out"] if one["why"] != SPENT]
    known = {(one["name"], one["way"]) for one in [*before["rows"], *tried]}
    again = {name for name in names if not {(name, way) for way in ways} <= known}
    return before | {
        "rows": [row for row in before["rows"] if row["name"] not in again],
        "equality": [one for one in before["equality"] if one["row"] not in again],
        "left_out": [one for one in tried if one["name"] not in again],
        "resumed": [*before.get("resumed", []), fresh["machine"]["date"]],
    }


def is_done(report: Report, name: str) -> bool:
    """Whether a row was measured, or tried, before."""
    return any(one["name"] == name for one in [*report["rows"], *report["left_out"]])


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
    """What was measured, with a line of how, and a row for each proxy and bundle; milliseconds a network."""
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
        _number(alone.get("ms")),
        _number(lockstep.get("ms")),
        _number(lockstep.get("population")),
        _number(processes.get("ms")),
        _number(gain),
        _number(floor),
        _number(best / floor if best and floor else None),
        _number(lockstep.get("peak_mib")),
        f"{max(errors):.0e}" if errors else "",
        f"{min(ranks):.4f}" if ranks else "",
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def left_out(report: Report) -> list[str]:
    """What was not measured, by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in report["left_out"]:
        by_reason.setdefault(one["why"], []).append(f"{one['name']} ({one['way']})")
    return [f"left out, {why}: {', '.join(rows)}" for why, rows in by_reason.items()]
