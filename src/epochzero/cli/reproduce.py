"""`epochzero reproduce`: a table or figure of a paper, measured again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import AsJson, DataSource, Device, Seed, StorePath, made_folder
from epochzero.errors import MachineError
from epochzero.experiments.base import Experiment, Result
from epochzero.experiments.report import circumstances, table, write
from epochzero.registry import experiments


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Experiment; `epochzero list experiments`.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small: a minute or two on two cores.")] = False,
    networks: Annotated[int | None, typer.Option("--networks", min=3, help="How many; default: the recipe's.")] = None,
    data: DataSource = "pink",
    seed: Seed = 0,
    device: Device = "cpu",
    store: StorePath = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for result.json, .csv, .md, and plots with matplotlib.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure a table or figure of a paper again, and print ours beside the paper's, with 95 % intervals.

    epochzero reproduce nasi-figure1 --quick --data cifar10.npz --store run.db --out nasi-figure1

    Stopped at any moment, the same command with the same store goes on where it was.
    """
    experiment: Experiment = experiments[name]
    settings = experiment.quick if quick else experiment.full
    if networks is not None:
        settings = replace(settings, networks=networks)
    folder = None if out_dir is None else made_folder(out_dir)
    with progress_bar("reproduce") as show:
        result = experiment.run(
            settings,
            seed=seed,
            data=data,
            device=device,
            store=store or ":memory:",
            progress=lambda done, total: show(done, total, ""),
        )
    if folder is not None:
        _write(result, folder)
    if json:
        print_json(result.as_dict())
    else:
        _show(result)


def _write(result: Result, folder: Path) -> None:
    try:
        names = write(result, folder)
    except OSError as error:
        raise MachineError(f"The result could not be written to '{folder}': {error.strerror}.") from error
    err.print(f"result  {folder}/{', '.join(names)}")
    if "result.png" not in names:
        err.print("No plot: matplotlib is not installed.", style="yellow")


def _show(result: Result) -> None:
    out.print(f"{result.about}\n", style="bold")
    heads, lines = table(result)
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        shown.add_column(head, no_wrap=not head.startswith("paper"))
    for line, row in zip(lines, result.rows, strict=True):
        shown.add_row(*line, style="" if row.found is not None else "yellow")
    out.print(shown)
    out.print()
    for fact in circumstances(result):
        out.print(fact, style="dim")
