"""`epochzero bench-speed`: the speed and memory of scoring."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from epochzero.cli.console import err, out, plain_table, print_json
from epochzero.cli.options import (
    AsJson,
    BatchSize,
    DataSource,
    Device,
    InputShape,
    Plugins,
    Seed,
    SpaceName,
    Threads,
    Workers,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins
from epochzero.evaluate.speed.measure import Settings, line, measure_speed
from epochzero.evaluate.speed.report import left_out
from epochzero.evaluate.speed.suite import as_markdown, run_suite

LEAST, MOST = 1e-3, 1e6
"""seconds"""


@panel("Measurements")
class MeasurementOptions:
    only: Annotated[str | None, Option(help="Proxies and bundles, separated by commas; default: all.")] = None
    ways: Annotated[str | None, Option(help="Of auto, lockstep, alone, processes; default: all.")] = None
    suite: Annotated[
        str | None, Option(help="all, or spaces separated by commas: measured on batches of a fixed size each.")
    ] = None
    space: SpaceName = Settings.space
    networks: Annotated[int, Option(min=1, help="Random networks.")] = Settings.networks
    alone_networks: Annotated[int, Option(min=1, help="Of these, scored one at a time.")] = Settings.alone_networks
    slow_networks: Annotated[int, Option(min=1, help="Of these, scored by slow proxies.")] = Settings.slow_networks
    population: Annotated[int | None, Option(min=1, help="Networks in a population; default: what memory allows.")] = (
        None
    )


@panel("Data")
class DataOptions:
    batch_size: BatchSize = Settings.batch_size
    data: DataSource = Settings.data
    input_shape: InputShape = None
    seed: Seed = Settings.seed


@panel("Running")
class RunningOptions:
    device: Device = Settings.device
    workers: Workers = None
    tf32: Annotated[bool, Option("--tf32", help="Let cuDNN and cuBLAS round factors to TF32.")] = False
    row_seconds: Annotated[float, Option(min=LEAST, max=MOST, help="About, for one measurement.")] = (
        Settings.row_seconds
    )
    budget: Annotated[float, Option(min=LEAST, max=MOST, help="Seconds after which no measurement is started.")] = (
        Settings.budget
    )


@panel("Output")
class OutputOptions:
    file: Annotated[Path | None, Option("--out", help="A JSON file for all measurements.")] = None
    resume: Annotated[bool, Option("--resume", help="Continue the report at --out.")] = False
    table: Annotated[Path | None, Option("--markdown", help="A file for the table in Markdown.")] = None
    json: AsJson = False


@spread
def bench_speed(
    measurements: MeasurementOptions,
    batch: DataOptions,
    running: RunningOptions,
    output: OutputOptions,
    threads: Threads = None,
    plugin: Plugins = None,
) -> None:
    """Time and memory of scoring a network: one at a time, in lockstep and in processes.

    epochzero bench-speed --device cuda --only "one batch,dextr,synflow" --out speed.json

    epochzero bench-speed --suite all --device cuda --resume --out suite.json --markdown suite.md

    Each proxy alone, and bundles that share passes: one batch, four batches, kernel, all quick, all but kernels, all.
    The floor is an estimate of what the machine's measured bandwidth and arithmetic allow, not a measured count.
    """
    load_plugins(plugin)
    given = vars(measurements) | vars(batch) | vars(running)
    suite = given.pop("suite")
    files: dict[str, Any] = {"out": output.file, "table": output.table, "resume": output.resume}
    show = partial(err.print, style="dim", soft_wrap=True)
    if suite is None:
        report = measure_speed(Settings(**given), show, **files)
    else:
        report = run_suite(suite, Settings(**given), lambda row: show(line(row)), **files)
    if output.json:
        print_json(report)
    elif suite is None:
        _show(report)
    else:
        out.print(as_markdown(report), soft_wrap=True, markup=False)


def _show(report: dict[str, Any]) -> None:
    heads = ("networks", "at a time", "ms a network", "networks/s", "peak MiB", "floor ms", "times")
    table = plain_table("proxies", "way", numbers=heads)
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
    heads = ("networks", "one has no score", "worst relative error", "Spearman")
    table = plain_table("lockstep against alone", "in", numbers=heads)
    for one in equality:
        numbers = [one["worst_relative_error"], one["spearman"]]
        shown = ["" if number is None else f"{number:.3g}" for number in numbers]
        table.add_row(one["proxy"], one["row"], str(one["networks"]), str(one["one_alone"] or ""), *shown)
    return table
