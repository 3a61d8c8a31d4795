"""A result as files: result.json (everything), result.csv (the rows), result.md (for people) and a plot."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from pathlib import Path
from typing import Any

from epochzero.experiments.base import Result, Row

PANEL = 2.6
"""inches along each side of one scatter plot"""
PER_LINE = 4
"""scatter plots side by side"""


def write(result: Result, folder: Path) -> list[str]:
    """Write the files into a folder that exists; their names. Without matplotlib, no plots."""
    texts = {
        "result.json": json.dumps(result.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "result.csv": as_csv(result),
        "result.md": as_markdown(result),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [*texts, *plot(result, folder)]


def table(result: Result) -> tuple[list[str], list[list[str]]]:
    """The rows as people read them, with their heads: ours with its interval beside the paper's."""
    spaces = result.spaces_of_paper
    heads = ["", "statistic", "n", "ours [95 %]", *(f"paper {space}" for space in spaces)]
    lines = []
    for row in result.rows:
        n, ours = "", "none"
        if (found := row.found) is not None:
            n, ours = str(found.n), f"{short(found.value)} [{short(found.low)}, {short(found.high)}]"
        paper = [short(row.paper[space], 2) if space in row.paper else "" for space in spaces]
        lines.append([row.name, row.statistic, n, ours, *paper])
    if result.space in spaces:
        heads.append("difference")
        for line, row in zip(lines, result.rows, strict=True):
            sign = "+" if round(row.difference or 0, 2) > 0 else ""
            line.append("" if row.difference is None else f"{sign}{short(row.difference, 2)}")
    return heads, lines


def short(value: float, digits: int = 3) -> str:
    """`.892`, `-.10`, `1.000`"""
    rounded = round(value, digits) + 0.0  # which turns -0.0 into 0.0
    written = f"{rounded:.{digits}f}"
    return written.replace("0.", ".", 1) if abs(rounded) < 1 else written


def circumstances(result: Result) -> list[str]:
    """How it was measured, one sentence each."""
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    machine, versions = result.machine, result.versions
    left_out = [
        f"{name}: {count} without a value: {why}."
        for name, reasons in result.unscored.items()
        for why, count in reasons.items()
    ]
    return [
        f"Source: {result.source}.",
        f"Space {result.space}; {settings}; seed {result.seed}; intervals: 95 %, bootstrap over networks.",
        *(f"Data of {', '.join(columns)}: {about}" for about, columns in result.batches.items()),
        f"Machine: {machine['cpu'] or machine['platform']}, {machine['cpu_count']} cores, device {result.device}; "
        f"torch {versions['torch']}, epochzero {versions['epochzero']}; {result.seconds:.0f} s; {result.date}.",
        *left_out,
        *dict.fromkeys(f"{row.name}: none, for {row.why}." for row in result.rows if row.found is None),
    ]


def as_markdown(result: Result) -> str:
    """A section to paste into a page of results."""
    heads, lines = table(result)
    rows = [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)]
    facts = [f"- {fact}" for fact in circumstances(result)]
    return "\n".join([f"## {result.experiment}", "", result.about, "", *rows, "", *facts, ""])


def as_csv(result: Result) -> str:
    """The rows, numbers in full."""
    spaces = result.spaces_of_paper
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    paper = [f"paper_{space}" for space in spaces]
    writer.writerow(["x", "y", "statistic", "n", "unscored", "value", "low", "high", *paper, "difference", "why"])
    for row in result.rows:
        found = row.found
        ours = ["", "", "", ""] if found is None else [found.n, found.value, found.low, found.high]
        printed = [row.paper.get(space, "") for space in spaces]
        writer.writerow(
            [row.x, row.y, row.statistic, ours[0], row.unscored, *ours[1:], *printed, row.difference, row.why]
        )
    return text.getvalue()


def plot(result: Result, folder: Path) -> list[str]:
    """result.png and result.svg: a scatter plot for each pair, a point for each network; nothing without matplotlib."""
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        return []
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in result.rows:
        pairs.setdefault((row.x, row.y), []).append(row)
    across = min(PER_LINE, len(pairs))
    down = math.ceil(len(pairs) / across)
    figure = figures.Figure(figsize=(PANEL * across, PANEL * down), layout="constrained")
    for place, ((x, y), rows) in enumerate(pairs.items(), start=1):
        axes = figure.add_subplot(down, across, place)
        both = [
            (a, b) for a, b in zip(result.values[x], result.values[y], strict=True) if a is not None and b is not None
        ]
        axes.scatter([a for a, _ in both], [b for _, b in both], s=6)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        found = (f"{row.statistic} {short(row.found.value, 2)}" for row in rows if row.found is not None)
        axes.set_title(", ".join(found), fontsize=7)
    names = ["result.png", "result.svg"]
    for name in names:
        figure.savefig(folder / name, dpi=150)
    return names
