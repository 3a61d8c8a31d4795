"""`epochzero reproduce`: a table or figure of a paper, measured again."""

from __future__ import annotations

from collections.abc import Sequence
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

    every: Annotated[
        bool, typer.Option("--all", help="Run every experiment whose data are there, one after another.")
    ] = False
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

    epochzero reproduce --all --quick --data-folder data --out results

    Stopped at any moment, the same command with the same store resumes.
    """
    load_plugins(running.plugin)
    if output.list_all:
        show_experiments(given.folder, output.json)
        return
    if output.every:
        if name is not None or output.about:
            raise UserError("--all runs every experiment: leave out the name and --about.")
        _all(size, given, running, output)
        return
    if name is None:
        raise UserError("Name what to reproduce, such as dextr-table1, or --all; epochzero reproduce --list shows all.")
    recipe: Any = experiments[name]
    if output.about:
        _about(recipe, given.folder, output.json)
        return
    results = None if output.out_dir is None else made_folder(output.out_dir)
    result = _run(recipe, size, given, running, given.scores or ())
    if results is not None:
        _write(result, results)
    if output.json:
        print_json(result.as_dict())
    else:
        _show(result)


def _run(
    recipe: Any, size: SizeOptions, given: InputOptions, running: RunningOptions, scores: Sequence[Path]
) -> Result:
    settings = recipe.sized(size.quick, size.networks)
    with progress_bar(recipe.name) as show:
        result: Result = recipe.run(
            settings,
            seed=size.seed,
            data=given.data,
            folder=given.folder,
            device=running.device,
            store=running.store or ":memory:",
            scores=scores,
            progress=lambda done, total: show(done, total, ""),
        )
    return result


def _all(size: SizeOptions, given: InputOptions, running: RunningOptions, output: OutputOptions) -> None:
    """Runs what can be run, says what is left out and why, and ends with an error if an experiment had one."""
    failed: list[str] = []
    finished: list[dict[str, Any]] = []
    for name in experiments:
        recipe: Any = experiments[name]
        if (status := recipe.status(given.folder)) in ("needs data", "planned"):
            err.print(f"{name}: left out, {status}")
            continue
        try:
            result = _run(recipe, size, given, running, (given.scores or ()) if recipe.takes_scores else ())
        except UserError as error:
            failed.append(name)
            err.print(f"{name}: {error}", style="red")
            continue
        if output.out_dir is not None:
            _write(result, made_folder(output.out_dir / name))
        finished.append(result.as_dict())
        if not output.json:
            _summary(result)
    if output.json:
        print_json({"experiments": finished, "failed": failed})
    if failed:
        raise UserError(
            f"{len(failed)} of {len(failed) + len(finished)} experiments ended with an error: {', '.join(failed)}."
        )


def _summary(result: Result) -> None:
    """Prints the size of an experiment, its seed, and what it leaves out."""
    known = sum(row.found is not None for row in result.rows)
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    out.print(f"{result.experiment}: {known} of {len(result.rows)} figures in {result.seconds:.0f} s", style="bold")
    out.print(f"  {settings}; seed {result.seed}", style="dim")
    for sentence in result.left_out:
        out.print(f"  {sentence}", style="dim")


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
