"""The tables that `epochzero bench` prints: ranked proxies, a column for each target."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from epochzero.cli.console import out, plain_table
from epochzero.evaluate.bench import BenchOutcome, CaseOutcome
from epochzero.evaluate.figures import BenchPair, BenchRow
from epochzero.evaluate.results import interval
from epochzero.stats import Figure
from epochzero.stats.text import short

TIED = "*"
"""marks the best of a column, and proxies that do not differ significantly from it"""
ROUNDING = 1e-9
"""largest spread of equal repeats"""
SHORT = {"spearman": "Spearman", "kendall": "Kendall", "pearson": "Pearson"}


def show(outcome: BenchOutcome, more: bool) -> None:
    """Prints all tables and a legend; with `more` every statistic."""
    for case in outcome.cases:
        if len(outcome.cases) > 1:
            out.print(f"{case.case.name} ({case.case.tasks[0].space.name})", style="bold")
        _show_case(case, more)
    compared = any(len(case.merits) > 1 for case in outcome.cases)
    repeats = max(len(case.case.tasks) for case in outcome.cases)
    if compared:
        out.print(f"{TIED} best in column, or not significantly different from it on these networks", style="dim")
    if repeats > 1:
        out.print(f"± standard deviation over {repeats} repeats; the figure is their mean", style="dim")


def _show_case(case: CaseOutcome, more: bool) -> None:
    by_proxy = _in_order(case)
    statistics = list(next(iter(by_proxy.values()))[0].quality.figures) if more else ["spearman", "kendall"]
    tied = {
        (target, place.row.proxy)
        for target, places in case.figures.ranking.items()
        for place in places
        if place.ties_with_first
    }
    marked = tied if len(by_proxy) > 1 else set()
    for statistic in statistics:
        regret = statistic.startswith("regret")
        heads = [f"{target} {unit}".strip() if regret else target for target, unit in case.sample.units.items()]
        table = plain_table(SHORT.get(statistic, statistic), numbers=["n", "none", *heads])
        for proxy, rows in by_proxy.items():
            cells = [
                _cell(row.quality.figures[statistic], statistic == "spearman" and (row.target, proxy) in marked)
                for row in rows
            ]
            quality = rows[0].quality
            table.add_row(proxy, str(quality.n), str(quality.unscored or ""), *cells)
        _print(table)
    if case.figures.pairs:
        _print(_pairs(case))
    for proxy, rows in by_proxy.items():
        for why, times in rows[0].quality.unscored_why.items():
            out.print(f"{proxy}: {times} without a score: {why}", style="dim")


def _in_order(case: CaseOutcome) -> dict[str, list[BenchRow]]:
    """The rows of each proxy in the targets' order; the proxies by their mean place."""
    by_proxy: dict[str, list[BenchRow]] = {}
    for row in case.figures.rows:
        by_proxy.setdefault(row.proxy, []).append(row)
    places = dict.fromkeys(by_proxy, 0)
    for ranked in case.figures.ranking.values():
        for place in ranked:
            places[place.row.proxy] += place.place
    return {proxy: by_proxy[proxy] for proxy in sorted(by_proxy, key=places.__getitem__)}


def _pairs(case: CaseOutcome) -> Table:
    """Differences of Spearman; bold if the interval excludes 0."""
    table = plain_table(f"difference from {case.figures.pairs[0].versus}", numbers=case.case.targets)
    cells: dict[str, list[Text]] = {}
    for pair in case.figures.pairs:
        cells.setdefault(pair.proxy, []).append(_difference(pair))
    for proxy, row in cells.items():
        table.add_row(proxy, *row)
    return table


def _difference(pair: BenchPair) -> Text:
    difference = pair.difference
    if difference is None:
        return Text(pair.why, "yellow")
    style = "bold" if pair.significant else ""
    return Text.assemble(
        (f"{difference.value:+.3f}", style), (f" [{difference.low:+.3f}, {difference.high:+.3f}]", "dim")
    )


def _cell(figure: Figure, tied: bool) -> Text:
    """`.892 [.866, .915] ±.004 *`, or the reason why there is none."""
    estimate = figure.estimate
    if estimate is None:
        return Text(figure.why, "yellow")
    value, _, bounds = interval(estimate).partition(" ")
    spread = f" ±{short(estimate.spread)}" if estimate.spread and estimate.spread > ROUNDING else ""
    return Text.assemble((value, "bold"), (f" {bounds}{spread}", "dim"), f" {TIED}" if tied else "")


def _print(table: Table) -> None:
    out.print(table)
    out.print()
