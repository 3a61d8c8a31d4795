"""`epochzero reproduce`: a table or figure of a paper, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.experiments import DATA_FOLDER, show_experiments
from epochzero.cli.options import AsJson, DataFolder, Device, Plugins, Seed, StorePath, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.errors import MachineError, UserError
from epochzero.files import made_folder
from epochzero.registry import experiments
from epochzero_papers.harness.base import Result
from epochzero_papers.harness.report import circumstances, table, write


@panel("Size")
class SizeOptions:
    """The size of an experiment, and its random draws."""

    quick: Annotated[bool, typer.Option("--quick", help="Small: a minute or two on two cores.")] = False
    networks: Annotated[
        int | None, typer.Option("--networks", min=3, help="Number of networks; default: the recipe's.")
    ] = None
    seed: Seed = 0


@panel("Data")
class InputOptions:
    """Tables, images and scores."""

    folder: DataFolder = DATA_FOLDER
    data: Annotated[
        str | None, typer.Option("--data", help="Other images: pink or white noise, .npz, CIFAR archive or folder.")
    ] = None
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            "--scores",
            help="Scores measured before (`epochzero store --to`), or a folder of them; only their networks are used, "
            "and none is scored again. May be repeated.",
        ),
    ] = None


@panel("Running")
class RunningOptions:
    """The device and the store."""

    device: Device = "cpu"
    store: StorePath = None
    plugin: Plugins = None


@panel("Output")
class OutputOptions:
    """The list of experiments, a description, or results."""

    list_all: Annotated[bool, typer.Option("--list", help="List all experiments, with those that can run here.")] = (
        False
    )
    about: Annotated[
        bool, typer.Option("--about", help="Print its protocol, data and the paper's figures; run nothing.")
    ] = False
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for result.json, .csv, .md, and plots with matplotlib.")
    ] = None
    json: AsJson = False


@spread
def reproduce(
    size: SizeOptions,
    given: InputOptions,
    running: RunningOptions,
    output: OutputOptions,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Experiment; see --list.")] = None,
) -> None:
    """Measure a table or figure of a paper again, and compare it with the paper's, with 95 % intervals.

    epochzero reproduce --list --data-folder data

    epochzero reproduce dextr-table1 --quick --data-folder data --store run.db --out dextr-table1

    epochzero reproduce dextr-table4 --data-folder data --scores docs/data

    Stopped at any moment, the same command with the same store resumes.
    """
    load_plugins(running.plugin)
    if output.list_all:
        show_experiments(given.folder, output.json)
        return
    if name is None:
        raise UserError("Name what to reproduce, such as dextr-table1; epochzero reproduce --list shows all.")
    recipe: Any = experiments[name]
    if output.about:
        _about(recipe, given.folder, output.json)
        return
    settings = recipe.sized(size.quick, size.networks)
    results = None if output.out_dir is None else made_folder(output.out_dir)
    with progress_bar("reproduce") as show:
        result = recipe.run(
            settings,
            seed=size.seed,
            data=given.data,
            folder=given.folder,
            device=running.device,
            store=running.store or ":memory:",
            scores=given.scores or (),
            progress=lambda done, total: show(done, total, ""),
        )
    if results is not None:
        _write(result, results)
    if output.json:
        print_json(result.as_dict())
    else:
        _show(result)


def _about(experiment: Any, folder: str, json: bool) -> None:
    needs = [{"files": file.names, "what": file.what, "there": bool(file.find(folder))} for file in experiment.needs]
    if json:
        facts = {"name": experiment.name, "status": experiment.status(folder), "source": experiment.source}
        quoted = [figure._asdict() for figure in experiment.quoted]
        print_json(facts | {"about": experiment.about, "protocol": experiment.protocol, "data": needs, "paper": quoted})
        return
    out.print(f"{experiment.about}\n", style="bold")
    out.print(f"{experiment.protocol}\n")
    out.print(f"Source: {experiment.source}. Status: {experiment.status(folder)}.")
    for need in needs:
        there = "there" if need["there"] else f"missing in '{folder}'"
        out.print(f"Data: {' or '.join(need['files'])} ({need['what']}): {there}.")
    shown = Table("", "", "statistic", "paper", box=None, pad_edge=False, header_style="dim")
    for figure in experiment.quoted:
        shown.add_row(figure.x, figure.y, figure.statistic, f"{figure.value:g}")
    out.print()
    out.print(shown if experiment.quoted else "The paper prints no figures.")


def _write(result: Result, folder: Path) -> None:
    try:
        names = write(result, folder)
    except OSError as error:
        raise MachineError(f"The result could not be written to '{folder}': {error.strerror}.") from error
    err.print(f"result  {folder}/{', '.join(names)}")
    if "result.png" not in names:
        drawable = any(row.found is not None for row in result.rows)
        why = "matplotlib is not installed" if drawable else "there is nothing to draw"
        err.print(f"No plot: {why}.", style="yellow")


def _show(result: Result) -> None:
    out.print(f"{result.about}\n", style="bold")
    for sample in result.samples:
        rows = [row for row in result.rows if row.sample == sample]
        heads, lines = table(rows)
        shown = Table(sample, box=None, pad_edge=False, header_style="dim")
        for head in heads[1:]:
            shown.add_column(head, no_wrap=True)
        for line, row in zip(lines, rows, strict=True):
            shown.add_row(*line, style="" if row.found is not None else "yellow")
        out.print(shown)
        out.print()
    for fact in circumstances(result):
        out.print(fact, style="dim")
