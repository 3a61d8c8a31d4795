"""`epochzero bench`: how far a score can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epochzero import data as data_
from epochzero.benchmarks import AccuracyTable
from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import (
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Device,
    Init,
    ProxyNames,
    Seed,
    SpaceName,
    StorePath,
)
from epochzero.engine import parse_list
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.run.bench import BenchOutcome, run_bench
from epochzero.run.task import Task
from epochzero.store import Store
from epochzero.types import Origin


def bench(
    table: Annotated[Path, typer.Option("--table", help="CSV or Parquet: a column arch_str, and accuracies.")],
    target: Annotated[str, typer.Option("--target", help="Columns to compare with, separated by commas.")],
    proxy: ProxyNames = "dextr,fmi,curvature,params,flops",
    space: SpaceName = "nb201",
    sample: Annotated[int | None, typer.Option("--sample", min=3, help="How many networks; default: all.")] = None,
    data: DataSource = "pink",
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    unscored: Annotated[
        str, typer.Option("--unscored", help="Networks without a score: drop, or rank them worst.")
    ] = "drop",
    store: StorePath = None,
    json: AsJson = False,
) -> None:
    """Rank correlation of proxies with known accuracies, with 95 % intervals.

    epochzero bench --table nb201.csv.gz --target cifar10_test,cifar100_test --proxy dextr,naswot --sample 1000

    A positive correlation means that the proxy points the right way as declared. Networks without a score are
    counted, with their reasons.
    """
    if unscored not in ("drop", "worst"):
        raise UserError(f"--unscored takes drop or worst, not {unscored!r}.")
    proxies = parse_list(proxy)
    batch = data_.load(data, num_classes=classes, size=batch_size, seed=seed)
    task = Task(spaces[space], proxies, batch, Origin(init, seed), device)
    targets = [column.strip() for column in target.split(",") if column.strip()]
    truths = AccuracyTable.read(table)
    with Store.open(store or ":memory:") as opened, progress_bar("bench") as bar:
        shown = bar.add_task("", total=sample)
        outcome = run_bench(
            task,
            truths,
            targets,
            sample,
            seed=seed,
            unscored=unscored,  # type: ignore[arg-type]
            store=opened,
            progress=lambda done, total: bar.update(shown, completed=done, total=total),
        )
    if json:
        rows = [{"proxy": row.proxy, "target": row.target, **asdict(row.quality)} for row in outcome.rows]
        print_json({"results": rows, "data": batch.about, "batch": batch.id, "seconds": outcome.seconds})
        return
    _show(outcome, targets)
    err.print(f"\n{len(outcome.archs)} networks in {outcome.seconds:.1f} s; data: {batch.about}")


def _show(outcome: BenchOutcome, targets: list[str]) -> None:
    table = Table("proxy", "target", "n", "no score", box=None, pad_edge=False, header_style="dim")
    table.add_column("Spearman", justify="right")
    table.add_column("95 %", style="dim")
    table.add_column("Kendall", justify="right")
    table.add_column("95 %", style="dim")
    for row in outcome.rows:
        q = row.quality
        if q.spearman is None or q.spearman_ci is None or q.kendall is None or q.kendall_ci is None:
            table.add_row(row.proxy, row.target, str(q.n), str(q.unscored), "[yellow]none[/]", q.why)
            continue
        rho, tau = (f"{low:.3f} to {high:.3f}" for low, high in (q.spearman_ci, q.kendall_ci))
        table.add_row(
            row.proxy, row.target, str(q.n), str(q.unscored), f"{q.spearman:.3f}", rho, f"{q.kendall:.3f}", tau
        )
    out.print(table)
    for row in outcome.rows:
        if row.target == targets[0]:
            for why, times in row.quality.unscored_why.items():
                out.print(f"[dim]{row.proxy}: {times} without a score: {why}[/]")
