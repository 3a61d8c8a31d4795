"""`epochzero data`: benchmark tables and official files as one small file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer import Argument, Option

from epochzero.cli.console import err, number, out, print_json
from epochzero.cli.options import AsJson, Plugins, Seed, SpaceName
from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.tables import TabularBenchmark
from epochzero.tables.importing import import_benchmark
from epochzero.tables.table import ENDING

data = typer.Typer(no_args_is_help=True, help="Benchmark tables and official files as one small file.")


@data.command("import")
def import_(
    source: Annotated[
        Path, Argument(help="CSV, Parquet, .tfrecord, .pth, .tar, .pickle.pbz2 or folder of a benchmark.")
    ],
    space: SpaceName,
    file: Annotated[Path, Option("--out", help=f"The file to write; its name ends in {ENDING}.")],
    unit: Annotated[str | None, Option(help="Make accuracies percent or fraction; default: as they are.")] = None,
    columns: Annotated[str | None, Option(help="Only these, separated by commas; cifar10_* for several.")] = None,
    mean: Annotated[bool, Option("--mean", help="Keep means over runs, not each run.")] = False,
    join: Annotated[list[Path] | None, Option(help="Another table of the same networks, such as latencies.")] = None,
    sample: Annotated[int | None, Option(min=1, help="Random networks to ask a surrogate (NAS-Bench-301) for.")] = None,
    seed: Seed = 0,
    trust: Annotated[
        bool, Option("--trust", help="Let the package nasbench301 unpickle the models in the folder.")
    ] = False,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Turn a benchmark into one compact, checksummed file that opens in a moment.

    epochzero data import nasbench_only108.tfrecord --space nb101 --out nb101.ezb
    epochzero data import nb201.csv.gz --space nb201 --join hwnasbench_nb201.csv.gz --out nb201.ezb
    """
    load_plugins(plugin)
    if not file.name.lower().endswith(ENDING):
        raise UserError(f"'{file}' does not say what to write: let its name end in {ENDING}.")
    wanted = [name.strip() for name in (columns or "").split(",") if name.strip()]
    made = import_benchmark(
        source,
        spaces[space],
        unit=unit,
        columns=wanted,
        mean=mean,
        join=join or [],
        sample=sample,
        seed=seed,
        trusted=trust,
    )
    made.write(file)
    _show(TabularBenchmark.open(file), file, json)


@data.command()
def show(
    file: Annotated[Path, Argument(help=f"An imported benchmark ({ENDING}).")],
    arch: Annotated[str | None, Option(help="What is known of this architecture.")] = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Check an imported benchmark, and show its columns.

    epochzero data show nb201.ezb --arch '|nor_conv_3x3~0|+...'
    """
    load_plugins(plugin)
    benchmark = TabularBenchmark.open(file)
    if arch is None:
        _show(benchmark, file, json)
        return
    match = benchmark.find(arch)
    values = {name: float(benchmark.column(name)[match.row]) for name in benchmark.names}
    if json:
        print_json({"arch": match.text, "exact": match.exact, "values": values})
        return
    if not match.exact:
        err.print(f"The row is that of an isomorphic architecture: {match.text}")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in values.items():
        table.add_row(name, "not known" if math.isnan(value) else number(value))
    out.print(table)


def _show(benchmark: TabularBenchmark, file: Path, json: bool) -> None:
    size = file.stat().st_size
    units = sorted({column.unit for column in benchmark.columns if column.quantity == "accuracy"})
    if json:
        about: dict[str, Any] = {
            "space": benchmark.space_name,
            "source": benchmark.origin,
            "architectures": len(benchmark),
            "columns": [column.as_json() for column in benchmark.columns],
            "unknown": benchmark.unknown,
            "notes": benchmark.notes,
            "bytes": size,
            "sha256": benchmark.id,
        }
        print_json(about)
        return
    out.print(f"{len(benchmark):,} architectures of {benchmark.space_name} from {benchmark.origin}")
    out.print(f"columns  {', '.join(dict.fromkeys(column.name for column in benchmark.columns))}")
    runs = sorted({column.seed for column in benchmark.columns if column.seed is not None})
    if runs:
        out.print(f"runs     {', '.join(map(str, runs))}")
    if units:
        out.print(f"accuracies are in {units[0]}" if units == ["percent"] else "accuracies are fractions")
    for note in (*benchmark.notes, *_gaps(benchmark.unknown)):
        out.print(note, style="yellow")
    err.print(f"{file}  {size / 1e6:.1f} MB  sha256 {benchmark.id[:16]}")


def _gaps(unknown: dict[str, int]) -> list[str]:
    """`2 values are not known: cifar10_test 2.`"""
    if not unknown:
        return []
    total = sum(unknown.values())
    are = "value is" if total == 1 else "values are"
    return [f"{total:,} {are} not known: {', '.join(f'{name} {count:,}' for name, count in unknown.items())}."]
