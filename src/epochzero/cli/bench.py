"""`epochzero bench`: how far a score can be trusted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.bench_files import as_document, draw, protocol, write
from epochzero.cli.bench_tables import show
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
    StorePath,
    Threads,
    Workers,
)
from epochzero.cli.options import (
    executor as executor_,
)
from epochzero.cli.plugin import load_plugins
from epochzero.data import Batch
from epochzero.errors import UserError
from epochzero.evaluate.bench import BenchOutcome, Case, run_bench
from epochzero.evaluate.figures import Rules
from epochzero.files import made_folder
from epochzero.objectives.objective import Objective, members, parse_objectives
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.networks import batch_for
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.types import Origin


def bench(
    table: Annotated[
        list[Path],
        typer.Option(
            "--table", help="CSV, Parquet or imported (.ezb): a column arch_str, and accuracies. May be repeated."
        ),
    ],
    target: Annotated[
        list[str],
        typer.Option("--target", help="Columns to compare with, separated by commas; once, or once for each table."),
    ],
    proxy: ProxyNames = "dextr,fmi,curvature,params,flops",
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="Search space, once, or once for each table; default: nb201."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=3, help="How many networks of each table; default: all.")
    ] = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="Repeats: seeds of weights and batch, such as 0,1,2; default: the --seed."),
    ] = None,
    data_seeds: Annotated[
        str | None,
        typer.Option("--data-seeds", help="Seeds of the batches, one for each of --seeds or one; default: the same."),
    ] = None,
    init: Init = "default",
    device: Device = "cpu",
    unscored: Annotated[
        str, typer.Option("--unscored", help="Networks without a score: drop, or rank them worst.")
    ] = "drop",
    top: Annotated[str, typer.Option("--top", help="The k of regret and precision among the first k: 1,10.")] = "10",
    versus: Annotated[
        str | None, typer.Option("--versus", help="One of the proxies: compare the others with it, as pairs.")
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="Score one of isomorphic networks for all of them; the output says so.")
    ] = False,
    more: Annotated[
        bool, typer.Option("--more", help="Print every statistic: given params and FLOPs, regret, precision, ...")
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for results.json, .csv, scores.csv, ranking.md, and plots with matplotlib."),
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

    epochzero bench --table nb201.ezb --space nb201 --target cifar10_test --table nb101.ezb --space nb101
    --target test_acc_108ep --proxy synflow,params --sample 1000 --seeds 0,1,2 --out results --store run.db

    A positive correlation means that the proxy points the right way as declared. Networks without a score are
    counted, with their reasons. The guide "trusting a score" says how to read the output.
    """
    load_plugins(plugin)
    if unscored not in ("drop", "worst"):
        raise UserError(f"--unscored takes drop or worst, not {unscored!r}.")
    objectives = parse_objectives(proxy)
    rival = _rival(versus, objectives)
    rules = Rules(seed, unscored, tuple(_numbers(top, "--top", least=1)))  # type: ignore[arg-type]
    repeats = _repeats(_numbers(seeds, "--seeds") if seeds else [seed], data_seeds)
    names = _for_each(space or ["nb201"], len(table), "--space")
    columns = [_split(text) for text in _for_each(target, len(table), "--target")]
    folder = None if out_dir is None else made_folder(out_dir)
    crew = executor_(executor, workers, threads, address, gpus, device, plugin)
    made: dict[tuple[str, int], Batch] = {}

    def task(name: str, weights: int, batch: int) -> Task:
        if (name, batch) not in made:
            made[name, batch] = batch_for(
                spaces[name], data, input_shape=shape(input_shape), num_classes=classes, size=batch_size, seed=batch
            )
        return Task(spaces[name], members(objectives), made[name, batch], Origin(init, weights), device, crew)

    tasks = [[task(name, *repeat) for repeat in repeats] for name in names]
    tables = [AccuracyTable.read(path) for path in table]
    cases = [Case(*parts) for parts in zip(_labels(table), tables, columns, tasks, strict=True)]
    with crew, Store.open(store or ":memory:") as opened, progress_bar("bench", estimate=False) as progress:
        outcome = run_bench(
            cases,
            objectives,
            sample,
            seed=seed,
            rules=rules,
            versus=rival,
            share=share,
            store=opened,
            progress=progress,
        )
    if json:
        print_json(as_document(outcome))
    else:
        show(outcome, more)
    for note in outcome.notes:
        (err if json else out).print(note, style="yellow")
    err.print()
    for fact in protocol(outcome):
        err.print(fact)
    err.print(f"{outcome.seconds:.1f} s")
    if folder is not None:
        _save(outcome, folder)


def _save(outcome: BenchOutcome, folder: Path) -> None:
    files = write(outcome, folder)
    try:
        with progress_bar("plots") as progress:
            files.append(f"{len(draw(outcome, folder, progress))} pictures")
    except UserError as missing:
        err.print(str(missing), style="yellow")
    err.print(f"results  {folder}/{', '.join(files)}")


def _rival(versus: str | None, objectives: list[Objective]) -> Objective | None:
    if versus is None:
        return None
    asked = parse_objectives(versus)
    if len(asked) != 1 or asked[0] not in objectives:
        raise UserError(f"--versus takes one of the proxies that are compared, not {versus!r}: name it in --proxy too.")
    return asked[0]


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(piece.strip() for piece in text.split(",") if piece.strip()))


def _numbers(text: str, option: str, least: int = 0) -> list[int]:
    """`0,1,2` as numbers, each once."""
    pieces = _split(text)
    if not pieces or not all(piece.isdecimal() and least <= int(piece) <= 2**62 for piece in pieces):
        raise UserError(f"{option} takes whole numbers from {least} on, separated by commas, not {text!r}.")
    return list(dict.fromkeys(map(int, pieces)))


def _repeats(seeds: list[int], data_seeds: str | None) -> list[tuple[int, int]]:
    """Seeds of weights and of the batch for each repeat."""
    batches = seeds if data_seeds is None else _numbers(data_seeds, "--data-seeds")
    if len(seeds) != len(batches) and 1 not in (len(seeds), len(batches)):
        raise UserError(
            f"There are {len(seeds)} --seeds and {len(batches)} --data-seeds: give equally many, which are taken in "
            f"pairs, or one of either."
        )
    number = max(len(seeds), len(batches))
    seeds, batches = (one * (number // len(one)) for one in (seeds, batches))
    return list(zip(seeds, batches, strict=True))


def _for_each(given: list[str], tables: int, option: str) -> list[str]:
    """One for each table."""
    if len(given) not in (1, tables):
        raise UserError(
            f"{option} is given {len(given)} times for {tables} {'table' if tables == 1 else 'tables'}: give it once, "
            f"or once for each --table, in their order."
        )
    return given * (tables // len(given))


def _labels(tables: list[Path]) -> list[str]:
    """The name of each file, with its folder where two have the same name."""
    for path, times in Counter(path.resolve() for path in tables).items():
        if times > 1:
            raise UserError(f"--table names {path.name} twice: give its columns in one --target, separated by commas.")
    names = Counter(path.name for path in tables)
    return [path.name if names[path.name] == 1 else str(path) for path in tables]
