"""`epochzero bench`: how far a score can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from epochzero.benchmarks import AccuracyTable
from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import (
    Address,
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Device,
    ExecutorName,
    Gpus,
    Init,
    InputShape,
    Plugins,
    ProxyNames,
    Seed,
    SpaceName,
    StorePath,
    Threads,
    Workers,
    shape,
)
from epochzero.cli.options import (
    executor as executor_,
)
from epochzero.cli.plugin import load_plugins
from epochzero.combine.objective import Objective, members, parse_objectives
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.run.bench import BenchOutcome, BenchPair, run_bench
from epochzero.run.network import batch_for
from epochzero.run.task import Task
from epochzero.stats import ProxyQuality
from epochzero.store import Store
from epochzero.types import Origin


def bench(
    table: Annotated[Path, typer.Option("--table", help="CSV or Parquet: a column arch_str, and accuracies.")],
    target: Annotated[str, typer.Option("--target", help="Columns to compare with, separated by commas.")],
    proxy: ProxyNames = "dextr,fmi,curvature,params,flops",
    space: SpaceName = "nb201",
    sample: Annotated[int | None, typer.Option("--sample", min=3, help="How many networks; default: all.")] = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    unscored: Annotated[
        str, typer.Option("--unscored", help="Networks without a score: drop, or rank them worst.")
    ] = "drop",
    versus: Annotated[
        str | None, typer.Option("--versus", help="One of the proxies: compare the others with it, as pairs.")
    ] = None,
    store: StorePath = None,
    executor: ExecutorName = "local",
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
    gpus: Gpus = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Rank correlation of proxies with known accuracies, with 95 % intervals.

    epochzero bench --table nb201.csv.gz --target cifar10_test,cifar100_test --proxy dextr,naswot --sample 1000

    A positive correlation means that the proxy points the right way as declared. Networks without a score are
    counted, with their reasons.
    """
    load_plugins(plugin)
    if unscored not in ("drop", "worst"):
        raise UserError(f"--unscored takes drop or worst, not {unscored!r}.")
    objectives = parse_objectives(proxy)
    rival = _rival(versus, objectives)
    batch = batch_for(
        spaces[space], data, input_shape=shape(input_shape), num_classes=classes, size=batch_size, seed=seed
    )
    crew = executor_(executor, workers, threads, address, gpus, device, plugin)
    task = Task(spaces[space], members(objectives), batch, Origin(init, seed), device, crew)
    targets = [column.strip() for column in target.split(",") if column.strip()]
    truths = AccuracyTable.read(table)
    with crew, Store.open(store or ":memory:") as opened, progress_bar("bench") as show:
        outcome = run_bench(
            task,
            truths,
            targets,
            sample,
            seed=seed,
            unscored=unscored,  # type: ignore[arg-type]
            objectives=objectives,
            versus=rival,
            store=opened,
            progress=lambda done, total: show(done, total, ""),
        )
    if json:
        rows = [{"proxy": row.proxy, "target": row.target, **asdict(row.quality)} for row in outcome.rows]
        pairs = [asdict(pair) for pair in outcome.pairs]
        print_json(
            {"results": rows, "pairs": pairs, "data": batch.about, "batch": batch.id, "seconds": outcome.seconds}
        )
        return
    _show(outcome, targets)
    err.print(f"\n{len(outcome.archs)} networks in {outcome.seconds:.1f} s; data: {batch.about}")


def _rival(versus: str | None, objectives: list[Objective]) -> Objective | None:
    if versus is None:
        return None
    asked = parse_objectives(versus)
    if len(asked) != 1 or asked[0] not in objectives:
        raise UserError(f"--versus takes one of the proxies that are compared, not {versus!r}: name it in --proxy too.")
    return asked[0]


def _show(outcome: BenchOutcome, targets: list[str]) -> None:
    for statistic in ("spearman", "kendall"):
        table = Table(statistic.capitalize(), box=None, pad_edge=False, header_style="dim")
        table.add_column("n", justify="right")
        table.add_column("none", justify="right")
        for target in targets:
            table.add_column(target, justify="right", overflow="fold")
        for proxy, quality in _by_proxy(outcome).items():
            values = [_interval(q, statistic) for q in quality]
            table.add_row(proxy, str(quality[0].n), str(quality[0].unscored or ""), *values)
        out.print(table)
        out.print()
    if outcome.pairs:
        _show_pairs(outcome, targets)
    for proxy, quality in _by_proxy(outcome).items():
        for why, times in quality[0].unscored_why.items():
            out.print(f"{proxy}: {times} without a score: {why}", style="dim")


def _show_pairs(outcome: BenchOutcome, targets: list[str]) -> None:
    """Differences of Spearman; bold where the interval leaves 0 out."""
    table = Table(f"less {outcome.pairs[0].versus}", box=None, pad_edge=False, header_style="dim")
    for target in targets:
        table.add_column(target, justify="right", overflow="fold")
    cells: dict[str, list[Text]] = {}
    for pair in outcome.pairs:
        cells.setdefault(pair.proxy, []).append(_difference(pair))
    for proxy, row in cells.items():
        table.add_row(proxy, *row)
    out.print(table)
    out.print()


def _difference(pair: BenchPair) -> Text:
    found = pair.difference
    if found is None:
        return Text(pair.why, "yellow")
    style = "bold" if found.low > 0 or found.high < 0 else ""
    return Text.assemble((f"{found.value:+.3f}", style), (f" [{found.low:+.3f}, {found.high:+.3f}]", "dim"))


def _by_proxy(outcome: BenchOutcome) -> dict[str, list[ProxyQuality]]:
    """For each proxy its quality on each target, in the targets' order."""
    found: dict[str, list[ProxyQuality]] = {}
    for row in outcome.rows:
        found.setdefault(row.proxy, []).append(row.quality)
    return found


def _interval(quality: ProxyQuality, statistic: str) -> Text:
    """`.892 [.866, .915]`, or why there is none."""
    value, interval = getattr(quality, statistic), getattr(quality, f"{statistic}_ci")
    if value is None:
        return Text(quality.why, "yellow")
    low, high = (f"{bound:.3f}".replace("0.", ".", 1) for bound in interval)
    shown = f"{value:.3f}".replace("0.", ".", 1)
    return Text.assemble((shown, "bold"), (f" [{low}, {high}]", "dim"))
