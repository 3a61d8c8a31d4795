"""A benchmark's results as data and as files: results.json, results.csv, scores.csv, ranking.md and plots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from epochzero.evaluate import plots
from epochzero.evaluate.bench import BenchOutcome, CaseOutcome
from epochzero.evaluate.figures import Place
from epochzero.files import as_json, csv_text, write, writing
from epochzero.pictures import save
from epochzero.progress import Progress
from epochzero.stats import Estimate
from epochzero.stats.text import short

FIGURES = ["table", "space", "target", "unit", "proxy", "statistic", "n", "unscored", "repeats"]
FIGURES += ["value", "low", "high", "spread", "why"]
SCORES = ["table", "space", "arch", "origin", "batch", "proxy", "value", "status", "why", "shared_from"]


def as_document(outcome: BenchOutcome) -> dict[str, Any]:
    """All results except the single scores, as plain values."""
    cases = outcome.cases
    return {
        "results": [
            _where(case)
            | {"proxy": row.proxy, "target": row.target, "unit": case.sample.units[row.target]}
            | row.quality.to_json()
            for case in cases
            for row in case.figures.rows
        ],
        "pairs": [_where(case) | asdict(pair) for case in cases for pair in case.figures.pairs],
        "ranking": [
            _where(case) | {"target": target} | _place(place)
            for case in cases
            for target, places in case.figures.ranking.items()
            for place in places
        ],
        "tables": [_table(case) for case in cases],
        "notes": outcome.notes,
        "seconds": outcome.seconds,
    }


def _where(case: CaseOutcome) -> dict[str, Any]:
    return {"table": case.case.name, "space": case.case.tasks[0].space.name}


def _place(place: Place) -> dict[str, Any]:
    quality, behind = place.row.quality, place.behind
    return {
        "place": place.place,
        "proxy": place.row.proxy,
        "spearman": quality.spearman,
        "spearman_ci": quality.spearman_ci,
        "behind_first": None if behind is None or behind.difference is None else asdict(behind.difference),
        "level_with_first": place.ties_with_first,
    }


def _table(outcome: CaseOutcome) -> dict[str, Any]:
    case, sample = outcome.case, outcome.sample
    shared = None
    if sample.sharing is not None:
        shared = {"classes": sample.sharing.classes, "classes_of_different_size": sample.sharing.unlike}
    return _where(outcome) | {
        "rows": len(case.table),
        "networks": len(sample.archs),
        "targets": sample.units,
        "repeats": [
            {"origin": str(task.origin), "batch": task.setting.batch, "data": task.batch.about} for task in case.tasks
        ],
        "device": case.tasks[0].device,
        "shared": shared,
    }


def write_results(outcome: BenchOutcome, folder: Path) -> list[str]:
    """Writes all results except the plots into a folder; returns the names of the files."""
    contents = {
        "results.json": as_json(as_document(outcome), indent=2) + "\n",
        "results.csv": csv_text(FIGURES, _figure_lines(outcome)),
        "scores.csv": csv_text(SCORES, _score_lines(outcome)),
        "ranking.md": as_markdown(outcome),
    }
    with writing("results", folder):
        for name, content in contents.items():
            write(folder / name, content)
    return list(contents)


def draw_results(outcome: BenchOutcome, folder: Path, progress: Progress) -> list[str]:
    """Draws the ranking and a scatter plot for each row; UserError without matplotlib."""
    with writing("results", folder):
        names = save(plots.ranking(outcome), folder, "ranking")
        rows = [(case, row) for case in outcome.cases for row in case.figures.rows]
        for done, (case, row) in enumerate(rows, 1):
            name = file_name(case.case.name, row.target, row.proxy)
            while f"{name}.png" in names:
                name += "_"
            names += save(plots.scatter(case, row), folder, name)
            progress(done, len(rows), "")
    return names


def file_name(*parts: str) -> str:
    """`nb201.csv.gz`, `cifar10_test`, `zico(batches=4)` as `nb201-cifar10_test-zico_batches_4`."""
    table, *others = parts
    table = re.sub(r"\.(csv|csv\.gz|parquet|ezb)$", "", Path(table).name, flags=re.IGNORECASE)
    return "-".join(re.sub(r"[^\w.]+", "_", part).strip("_.") for part in (table, *others))[:150]


def _figure_lines(outcome: BenchOutcome) -> Iterator[Sequence[object]]:
    for case in outcome.cases:
        for row in case.figures.rows:
            quality = row.quality
            where = (*_where(case).values(), row.target, case.sample.units[row.target], row.proxy)
            for statistic, figure in quality.figures.items():
                one = figure.estimate
                values = ("", "", "", "") if one is None else (one.value, one.low, one.high, one.spread)
                n = quality.n if one is None else one.n
                yield (*where, statistic, n, quality.unscored, quality.repeats, *values, figure.why)


def _score_lines(outcome: BenchOutcome) -> Iterator[Sequence[object]]:
    for case in outcome.cases:
        sample, where = case.sample, tuple(_where(case).values())
        leaders = range(len(sample.archs)) if sample.sharing is None else sample.sharing.leaders
        for task, by_proxy in zip(case.case.tasks, case.scores, strict=True):
            for proxy in task.proxies:
                for place, score in enumerate(by_proxy[proxy.text]):
                    leader = place if proxy.free else leaders[place]
                    shared_from = "" if leader == place else sample.archs[leader]
                    value = score.value if score.ok else ""
                    setting = (str(task.origin), task.setting.batch, proxy.text)
                    yield (*where, sample.archs[place], *setting, value, score.status, score.why, shared_from)


def as_markdown(outcome: BenchOutcome) -> str:
    """The ranking of the proxies on each column, and a description of the measurement."""
    heads = ("place", "proxy", "n", "Spearman [95 %]", "difference from the first [95 %]", "significant")
    lines = ["# Ranked comparison", ""]
    for case in outcome.cases:
        for target, places in case.figures.ranking.items():
            lines += [f"## {case.case.name}, {target}", ""]
            rows = (heads, ["---"] * len(heads), *(_ranked(place) for place in places))
            lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
            lines.append("")
    return "\n".join([*lines, *(f"- {fact}" for fact in [*protocol(outcome), *outcome.notes]), ""])


def _ranked(place: Place) -> list[str]:
    quality, behind = place.row.quality, place.behind
    rho = quality.figures["spearman"]
    if rho.estimate is None:
        return ["", place.row.proxy, str(quality.n), rho.why, "", ""]
    gap, significant = "", ""
    if behind is not None:
        gap = behind.why if behind.difference is None else interval(behind.difference)
        significant = "" if behind.difference is None else "yes" if behind.significant else "no"
    return [str(place.place), place.row.proxy, str(quality.n), interval(rho.estimate), gap, significant]


def interval(estimate: Estimate) -> str:
    """`.892 [.866, .915]`, with the number of pairs if not all were compared."""
    pairs = "" if estimate.pairs is None else f", {estimate.pairs:,} pairs"
    return f"{short(estimate.value)} [{short(estimate.low)}, {short(estimate.high)}]{pairs}"


def protocol(outcome: BenchOutcome) -> list[str]:
    """A sentence for each table that describes its measurement."""
    facts = []
    for of_case in outcome.cases:
        case, tasks = of_case.case, of_case.case.tasks
        weights = ", ".join(dict.fromkeys(str(task.origin) for task in tasks))
        others = len({task.batch.id for task in tasks}) - 1
        data = tasks[0].batch.about + (f" And {others} with other seeds." if others else "")
        facts.append(
            f"{case.name}: {len(of_case.sample.archs):,} of {len(case.table):,} networks of {tasks[0].space.name}; "
            f"{len(tasks)} {'repeat' if len(tasks) == 1 else 'repeats'}, weights {weights}; data: {data}"
        )
    return facts
