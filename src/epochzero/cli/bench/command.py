"""The command `epochzero bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from epochzero.cli.bench.tables import show
from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import (
    AsJson,
    BatchOptions,
    Init,
    ProxyNames,
    RunningOptions,
    Seed,
    StorePath,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError
from epochzero.evaluate import setup
from epochzero.evaluate.bench import BenchOutcome
from epochzero.evaluate.results import as_document, draw_results, protocol, write_results
from epochzero.evaluate.setup import BenchSettings
from epochzero.files import made_folder
from epochzero.store import Store


@panel("Comparison")
class ComparisonOptions:
    proxy: ProxyNames = BenchSettings.proxies
    space: Annotated[list[str] | None, Option(help="Search space, once, or once for each table; default: nb201.")] = (
        None
    )
    sample: Annotated[int | None, Option(min=3, help="Networks of each table to score; default: all.")] = None
    unscored: Annotated[str, Option(help="Networks without a score: drop, or rank them worst.")] = "drop"
    top: Annotated[str, Option(help="The k of regret and precision among the first k: 1,10.")] = "10"
    versus: Annotated[str | None, Option(help="One of the proxies: compare the others with it, as pairs.")] = None
    share: Annotated[
        bool, Option("--share", help="Score one of isomorphic networks for all of them; the output says so.")
    ] = False


@panel("Data")
class DataOptions(BatchOptions):
    seed: Seed = 0
    seeds: Annotated[
        str | None, Option(help="Repeats: seeds of weights and batch, such as 0,1,2; default: the --seed.")
    ] = None
    data_seeds: Annotated[
        str | None, Option(help="Seeds of the batches, one for each of --seeds or one; default: the same.")
    ] = None
    init: Init = "default"


@panel("Output")
class OutputOptions:
    more: Annotated[
        bool, Option("--more", help="Print every statistic: given params and FLOPs, regret, precision, ...")
    ] = False
    out_dir: Annotated[
        Path | None,
        Option("--out", help="Folder for results.json, .csv, scores.csv, ranking.md, and plots with matplotlib."),
    ] = None
    store: StorePath = None
    json: AsJson = False


@spread
def bench(
    table: Annotated[
        list[Path], Option(help="CSV, Parquet or imported (.ezb): a column arch_str, and accuracies. May be repeated.")
    ],
    target: Annotated[
        list[str], Option(help="Columns to compare with, separated by commas; once, or once for each table.")
    ],
    comparison: ComparisonOptions,
    scoring: DataOptions,
    running: RunningOptions,
    output: OutputOptions,
) -> None:
    """Rank correlation of proxies with known accuracies, with 95 % intervals.

    epochzero bench --table nb201.csv.gz --target cifar10_test,cifar100_test --proxy dextr,naswot --sample 1000

    epochzero bench --table nb201.ezb --space nb201 --target cifar10_test --table nb101.ezb --space nb101
    --target test_acc_108ep --proxy synflow,params --sample 1000 --seeds 0,1,2 --out results --store run.db

    A positive correlation means that the proxy points the right way as declared. Networks without a score are
    counted, with their reasons. The guide "trusting a score" says how to read the output.
    """
    load_plugins(running.plugin)
    given = vars(comparison) | vars(scoring)
    proxies, spaces = given.pop("proxy"), given.pop("space") or ["nb201"]
    settings = BenchSettings(table, target, proxies, spaces, device=running.device, **given)
    folder = None if output.out_dir is None else made_folder(output.out_dir)
    executor = running.made()
    with executor, Store.open(output.store or ":memory:") as store, progress_bar("bench", estimate=False) as progress:
        outcome = setup.bench(settings, store=store, executor=executor, progress=progress)
    if output.json:
        print_json(as_document(outcome))
    else:
        show(outcome, output.more)
    for note in outcome.notes:
        (err if output.json else out).print(note, style="yellow")
    err.print()
    for fact in protocol(outcome):
        err.print(fact)
    err.print(f"{outcome.seconds:.1f} s")
    if folder is not None:
        _save(outcome, folder)


def _save(outcome: BenchOutcome, folder: Path) -> None:
    files = write_results(outcome, folder)
    try:
        with progress_bar("plots") as progress:
            files.append(f"{len(draw_results(outcome, folder, progress))} pictures")
    except UserError as missing:
        err.print(str(missing), style="yellow")
    err.print(f"results  {folder}/{', '.join(files)}")
