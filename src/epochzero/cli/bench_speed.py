"""`epochzero bench-speed`: how fast networks are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from epochzero.cli.console import err, out, print_json
from epochzero.cli.options import AsJson, BatchSize, DataSource, Device, InputShape, Plugins, Seed, SpaceName, Workers
from epochzero.cli.plugin import load_plugins
from epochzero.evaluate.speed.measure import Settings, measure_speed
from epochzero.evaluate.speed.report import left_out


def bench_speed(
    only: Annotated[
        str | None, typer.Option("--only", help="Proxies and bundles, separated by commas; default: every one.")
    ] = None,
    ways: Annotated[str | None, typer.Option("--ways", help="Of lockstep, alone, processes; default: all.")] = None,
    space: SpaceName = "nb201",
    networks: Annotated[int, typer.Option("--networks", min=1, help="Random networks.")] = Settings.networks,
    alone_networks: Annotated[
        int, typer.Option("--alone-networks", min=1, help="Of these, scored one after the other.")
    ] = Settings.alone_networks,
    slow_networks: Annotated[
        int, typer.Option("--slow-networks", min=1, help="Of these, scored by slow proxies.")
    ] = Settings.slow_networks,
    population: Annotated[
        int | None, typer.Option("--population", min=1, help="Networks side by side; default: what memory allows.")
    ] = None,
    batch_size: BatchSize = Settings.batch_size,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    seed: Seed = 0,
    device: Device = "cpu",
    workers: Workers = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="Let cuDNN and cuBLAS round factors to TF32.")] = False,
    row_seconds: Annotated[
        float, typer.Option("--row-seconds", help="For one measurement, about.")
    ] = Settings.row_seconds,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds after which nothing more is begun.")
    ] = Settings.budget,
    file: Annotated[Path | None, typer.Option("--out", help="A JSON file for everything measured.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the report at --out.")] = False,
    table: Annotated[Path | None, typer.Option("--markdown", help="A file for the table in Markdown.")] = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Milliseconds and memory a network: one by one, in lockstep and in processes.

    epochzero bench-speed --device cuda --only "one batch,dextr,synflow" --out speed.json

    Each proxy alone, and bundles that share passes: one batch, four batches, kernel, all quick, all but kernels, all.
    The floor is an estimate of what the machine's measured bandwidth and arithmetic allow, not a measured count.
    """
    load_plugins(plugin)
    settings = Settings(
        space=space,
        only=only,
        ways=ways,
        networks=networks,
        alone_networks=alone_networks,
        slow_networks=slow_networks,
        population=population,
        batch_size=batch_size,
        data=data,
        input_shape=input_shape,
        seed=seed,
        device=device,
        workers=workers,
        tf32=tf32,
        row_seconds=row_seconds,
        budget=budget,
    )
    report = measure_speed(
        settings, lambda row: err.print(row, style="dim", soft_wrap=True), out=file, table=table, resume=resume
    )
    if json:
        print_json(report)
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    heads = ("networks", "at a time", "ms a network", "networks/s", "peak MiB", "floor ms", "times")
    table = Table("proxies", "way", box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="right")
    for row in report["rows"]:
        limit = [f"{row['floor']['ms']:.3g}", f"{row['times_floor']:.3g}"] if row["times_floor"] else ["", ""]
        cells = [f"{row['ms']:.3f}", f"{row['per_second']:.1f}", f"{row['peak_mib']:.0f}", *limit]
        table.add_row(row["name"], row["way"], str(row["networks"]), str(row["population"]), *cells)
    out.print(table)
    if report["equality"]:
        out.print()
        out.print(_agreement(report["equality"]))
    for sentence in left_out(report):
        out.print(sentence, style="yellow")


def _agreement(equality: list[dict[str, Any]]) -> Table:
    """Lockstep against one by one."""
    table = Table("lockstep against alone", "in", box=None, pad_edge=False, header_style="dim")
    for head in ("networks", "one has no score", "worst relative error", "Spearman"):
        table.add_column(head, justify="right")
    for one in equality:
        numbers = [one["worst_relative_error"], one["spearman"]]
        shown = ["" if number is None else f"{number:.3g}" for number in numbers]
        table.add_row(one["proxy"], one["row"], str(one["networks"]), str(one["one_alone"] or ""), *shown)
    return table
