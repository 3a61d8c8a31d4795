"""A result as files: result.json (everything), result.csv (the rows), result.md (to read) and a plot."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from epochzero.errors import UserError
from epochzero.evaluate.plots import spread_out
from epochzero.pictures import new_panels, save, style
from epochzero.stats.text import short
from epochzero_papers.harness.base import REPEAT, Result, Row, Sample

PANEL = 2.6
"""inches along each side of one scatter plot"""
PER_LINE, PER_LONG_LINE, FEW = 4, 10, 16
"""scatter plots in a row; more in a row if there are more than a few"""
PER_TITLE = 3
"""figures that fit into a title"""


def write(result: Result, folder: Path) -> list[str]:
    """Write the files into an existing folder; returns their names. Plots need matplotlib."""
    texts = {
        "result.json": json.dumps(result.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "result.csv": as_csv(result),
        "result.md": as_markdown(result),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [*texts, *plot(result, folder)]


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns heads and rows to read; a value of a single network has no interval."""
    heads = ["", "statistic", "n", "ours [95 %]", "paper", "difference"]
    lines = []
    for row in rows:
        n, ours = "", "none"
        if (found := row.found) is not None:
            interval = f" [{short(found.low)}, {short(found.high)}]" if found.n > 1 else ""
            n, ours = str(found.n), f"{short(found.value)}{interval}"
        paper = "" if row.paper is None else short(row.paper, 2 if round(row.paper, 2) == row.paper else 3)
        lines.append([row.name, row.statistic, n, ours, paper, _signed(row.difference)])
    return heads, lines


def _signed(difference: float | None) -> str:
    if difference is None:
        return ""
    return f"{'+' if round(difference, 2) > 0 else ''}{short(difference, 2)}"


def circumstances(result: Result) -> list[str]:
    """Returns sentences about data, settings, machine and missing values."""
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    machine, versions = result.machine, result.versions
    several = len(result.samples) > 1
    facts = [
        f"Source: {result.source}.",
        f"Networks of {', '.join(dict.fromkeys(sample.space for sample in result.samples.values()))}; {settings}; "
        f"seed {result.seed}; intervals: 95 %, over what n counts"
        f"{' and repeats' if result.settings['repeats'] > 1 else ''}.",
    ]
    for name, sample in result.samples.items():
        where = f" ({name})" if several else ""
        for about, columns in sample.batches.items():
            of = f" of {_together(columns, sample)}" if len(sample.batches) > 1 else ""
            facts.append(f"Data{of}{where}: {about}")
    if result.scores:
        facts.append(f"Scores were read from {', '.join(result.scores)}; none was computed here.")
    facts.append(
        f"Machine: {machine['cpu'] or machine['platform']}, {machine['cpu_count']} cores, device {result.device}; "
        f"torch {versions['torch']}, epochzero {versions['epochzero']}; {result.seconds:.0f} s; {result.date}."
    )
    for name, sample in result.samples.items():
        where = f" ({name})" if several else ""
        alike: dict[tuple[str, int], list[str]] = {}
        for column, reasons in sample.unscored.items():
            for reason in reasons.items():
                alike.setdefault(reason, []).append(column)
        for (why, count), columns in alike.items():
            facts.append(f"{_together(columns, sample)}{where}: {count} without a value: {why}.")
        facts += [f"{names}{where}: {repeats}." for names, repeats in _fewer_repeats(sample)]
    unmeasured = dict.fromkeys(f"{row.name}: none, for {row.why}." for row in result.rows if row.found is None)
    return [*facts, *unmeasured, *result.left_out]


def _repeats(columns: Iterable[str]) -> dict[str, list[str]]:
    """Returns the columns of all repeats by their plain name."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(column.partition(REPEAT)[0], []).append(column)
    return by_name


def _known(columns: Iterable[str], sample: Sample) -> list[str]:
    """Returns the columns that have a value."""
    return [column for column in columns if any(value is not None for value in sample.values[column])]


def _fewer_repeats(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yields columns without any value in some repeat, with how many repeats their figures are of."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, columns in _repeats(sample.values).items():
        if 0 < (known := len(_known(columns, sample))) < len(columns):
            alike.setdefault((known, len(columns)), []).append(name)
    for (known, repeats), names in alike.items():
        yield ", ".join(names), f"of {known} of {repeats} repeats, those with a value"


def _together(columns: Sequence[str], sample: Sample) -> str:
    """Returns columns as text: a column of every repeat by its plain name, a whole repeat by its number."""
    repeats = _repeats(sample.data)
    numbers = {column.partition(REPEAT)[2] or "1" for column in columns}
    several = any(len(names) > 1 for names in repeats.values())
    if several and len(numbers) == 1 and len(columns) == len(repeats):
        return f"repeat {numbers.pop()}"
    named: list[str] = []
    for names in repeats.values():
        asked = [column for column in names if column in columns]
        named += asked if len(asked) < len(names) else [names[0]]
    return ", ".join(named)


def as_markdown(result: Result) -> str:
    """Returns a section for a page of results."""
    heads, lines = table(result.rows)
    if len(result.samples) > 1:
        heads = ["sample", *heads]
        lines = [[row.sample, *line] for row, line in zip(result.rows, lines, strict=True)]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (heads, ["---"] * len(heads), *lines)]
    rows = [f"| {' | '.join(line)} |" for line in cells]
    facts = [f"- {fact}" for fact in circumstances(result)]
    return "\n".join([f"## {result.experiment}", "", result.about, "", *rows, "", *facts, ""])


def as_csv(result: Result) -> str:
    """Returns the rows with unrounded numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["sample", "x", "y", "statistic", "n", "unscored", "value", "low", "high", "paper", "difference", "why"]
    )
    for row in result.rows:
        figure = row.found
        n, *ours = ["", "", "", ""] if figure is None else [figure.n, figure.value, figure.low, figure.high]
        writer.writerow(
            [row.sample, row.x, row.y, row.statistic, n, row.unscored, *ours, row.paper, row.difference, row.why]
        )
    return text.getvalue()


@style()
def plot(result: Result, folder: Path) -> list[str]:
    """Draw result.png and result.svg: a scatter plot for each pair; boxes or a histogram for single columns.

    Only pairs with a figure are drawn, with the first repeat that has values. A box reaches from the first to the
    third quartile, with a line at the median; its whiskers reach the last value within one and a half times its
    height, and values beyond are points.
    """
    panels: dict[tuple[str, str, str], list[Row]] = {}
    for row in result.rows:
        if row.found is not None:
            paired = row.y in result.samples[row.sample].values
            panels.setdefault((row.sample, row.x if paired else "", row.y), []).append(row)
    if not panels:
        return []
    try:
        figure, places = new_panels(len(panels), PER_LINE if len(panels) <= FEW else PER_LONG_LINE, PANEL, PANEL)
    except UserError:  # no matplotlib
        return []
    for axes, ((sample, x, y), rows) in zip(places, panels.items(), strict=True):
        of = result.samples[sample]
        repeats = _repeats(of.values)
        drawn = {row.x: next(iter(_known(repeats[row.x], of)), row.x) for row in rows}
        alone = {column: [value for value in of.values[column] if value is not None] for column in drawn.values()}
        if x:
            pairs = zip(of.values[drawn[x]], of.values[y], strict=True)
            both = [(a, b) for a, b in pairs if a is not None and b is not None]
            axes.scatter([a for a, _ in both], [b for _, b in both], s=6)
            spread_out(axes, np.array([a for a, _ in both], np.float64))
        elif len(alone) == 1:
            axes.hist(*alone.values())
        else:
            axes.boxplot(list(alone.values()), tick_labels=list(alone))
            axes.tick_params(axis="x", rotation=90)
        axes.set_xlabel(next(iter(alone)) if len(alone) == 1 else "")
        axes.set_ylabel(y)
        labels = [f"{row.statistic} {short(row.found.value, 2)}" for row in rows if len(alone) == 1 and row.found]
        labels = labels if len(labels) <= PER_TITLE else []
        heading = [sample] if len(result.samples) > 1 else []
        axes.set_title("\n".join([*heading, ", ".join(labels)]))
    return save(figure, folder, "result")
