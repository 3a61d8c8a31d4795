"""`epochzero leaderboard`: all proxies and combinations on all tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from epochzero.cli.console import err, out, print_aligned, print_json, progress_bar
from epochzero.cli.options import (
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Init,
    InputShape,
    RunningOptions,
    Seed,
    StorePath,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins
from epochzero.errors import MachineError, UserError
from epochzero.evaluate import evidence
from epochzero.evaluate.leaderboard.added import Scoring
from epochzero.evaluate.leaderboard.leaderboard import Leaderboard, Settings
from epochzero.evaluate.leaderboard.leaderboard import leaderboard as made_of
from epochzero.evaluate.leaderboard.page import as_document, as_markdown
from epochzero.evaluate.leaderboard.standings import Row, Rules
from epochzero.evaluate.results import interval
from epochzero.files import write
from epochzero.quantities import shape
from epochzero.stats.text import short
from epochzero.store import Store

SCORES = Path("docs/data")


@panel("Comparison")
class ComparisonOptions:
    scores: Annotated[
        list[Path] | None,
        Option(help="Files of scores, or folders of them; default: docs/data of the repository."),
    ] = None
    proxy: Annotated[
        str | None,
        Option(help="Proxies and combinations such as rank(dextr,flops); default: all stored ones."),
    ] = None
    networks: Annotated[int, Option(min=3, help="Of each table, at most.")] = 1000
    choose: Annotated[
        int, Option(min=0, max=6, help="Most proxies of a combination chosen by accuracies; 0: none.")
    ] = 3
    resamples: Annotated[int, Option(min=1, help="Of the intervals.")] = 200


@panel("A proxy of your own")
class AddingOptions:
    add: Annotated[str | None, Option(help="Proxies to score on the tables' networks, such as a plug-in's.")] = None
    data: DataSource = "pink"
    input_shape: InputShape = None
    batch_size: BatchSize = 64
    classes: Classes = None
    init: Init = "default"
    store: StorePath = None


@panel("Output")
class OutputOptions:
    markdown: Annotated[Path | None, Option(help="Write the page with every statistic to this file.")] = None
    evidence: Annotated[
        Path | None, Option(help="Write the correlations as the evidence that searches quote to this file.")
    ] = None
    json: AsJson = False


@spread
def leaderboard(
    table: Annotated[
        list[str],
        Option(help="SPACE=FILE:COLUMN, or a folder with tables of known names. May be repeated."),
    ],
    comparison: ComparisonOptions,
    adding: AddingOptions,
    running: RunningOptions,
    output: OutputOptions,
    seed: Seed = 0,
) -> None:
    """Rank correlations of all stored scores with accuracies, on many tables: mean, worst and rank.

    epochzero leaderboard --table nb201=nb201.csv.gz:cifar10_test,cifar100_test
    --table nb101=nb101_15k.csv.gz:test_acc_108ep

    epochzero leaderboard --table tables --add my_proxy --plugin mine.py --networks 200 --data cifar10.npz

    Only scores that were stored before are read, unless --add names a proxy. Combinations are chosen by the accuracies
    of all other spaces (left out), and with hindsight. A column with - before its name is better if lower.
    """
    load_plugins(running.plugin)
    if comparison.scores is None and not SCORES.is_dir():
        raise UserError(
            f"There is no folder '{SCORES}' here: name files of scores, or a folder of them, with --scores."
        )
    every = output.json or output.markdown is not None
    settings = Settings(
        scores=comparison.scores or [SCORES],
        tables=table,
        proxies=comparison.proxy,
        add=adding.add,
        networks=comparison.networks,
        choose=comparison.choose,
        rules=Rules(comparison.resamples, seed, every),
    )
    executor = running.made()
    scoring = Scoring(
        data=adding.data,
        input_shape=shape(adding.input_shape),
        classes=adding.classes,
        batch_size=adding.batch_size,
        seed=seed,
        init=adding.init,
        device=running.device,
        executor=executor,
    )
    with executor, Store.open(adding.store or ":memory:") as store, progress_bar("leaderboard") as progress:
        made = made_of(settings, scoring, store, progress)
    if output.markdown is not None:
        _write(made, output.markdown)
    if output.evidence is not None:
        _put(output.evidence, evidence.written(made))
    if output.json:
        print_json(as_document(made))
    else:
        _show(made)
    for note in made.notes:
        err.print(note, style="dim")


def _show(made: Leaderboard) -> None:
    """Prints a line for each contestant, of any length: names are last, since combinations are long."""
    for i, board in enumerate(made.boards, start=1):
        out.print(f"{i:3}  {board.name}, {len(board.archs):,} networks", style="dim")
    heads = ["mean", "worst", "rank", "vs flops", *map(str, range(1, len(made.boards) + 1))]
    rows = ((_cells(made, row), row.name, "" if row.rank else "dim") for row in made.rows)
    print_aligned([(heads, "", "dim"), *rows])
    for name, chosen in made.chosen.items():
        out.print(f"{name}: {', '.join(dict.fromkeys(one.text for one in chosen.objectives.values()))}", style="dim")
    if any(row.rank is None for row in made.rows):
        out.print("without a rank: not run on all tables, so its mean is over other tables", style="dim")


def _cells(made: Leaderboard, row: Row) -> list[str]:
    results = [row.results.get(board.name) for board in made.boards]
    rhos = ["" if one is None else short(one.rho) if one.figures["spearman"].estimate else "none" for one in results]
    rank = "" if row.rank is None else f"{row.rank:.1f}"
    behind = "" if row.versus_flops is None else short(row.versus_flops)
    return [interval(row.mean), short(row.worst.value), rank, behind, *rhos]


def _write(made: Leaderboard, path: Path) -> None:
    _put(path, as_markdown(made, " ".join(["epochzero", *map(_without_folder, sys.argv[1:])])))


def _put(path: Path, text: str) -> None:
    try:
        write(path, text)
    except OSError as error:
        raise MachineError(f"'{path}' could not be written: {error.strerror}.") from error


def _without_folder(word: str) -> str:
    """Returns a word of the command without the folder of a file: a page says which, not where."""
    space, equals, file = word.rpartition("=")
    return f"{space}{equals}{file if file.startswith('docs/') else Path(file).name}"
