"""`epochzero store`: the runs of a result store, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from epochzero.cli.console import err, out, plain_table, print_json
from epochzero.cli.options import AsJson
from epochzero.errors import UserError
from epochzero.store import Store, add, export, salvage

LAST = 100


def store(
    path: Annotated[Path, Argument(help="The store, e.g. run.db.")],
    to: Annotated[Path | None, Option(help="Write every score to this file: .csv, .csv.gz or .parquet.")] = None,
    more: Annotated[
        list[Path] | None,
        Option("--add", help="Add the scores of such a file, or of all in a folder. May be repeated."),
    ] = None,
    last: Annotated[int, Option(min=0, help="How many of the latest runs to show; 0: all.")] = LAST,
    backup: Annotated[Path | None, Option(help="Copy the store to this file, also while a run writes to it.")] = None,
    saved: Annotated[
        Path | None, Option("--salvage", help="Save what can be read of a damaged store to this new file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the runs in a result store, export its scores, add those of another, copy it, or salvage it.

    epochzero store run.db --to scores.csv

    epochzero store run.db --add scores.csv

    epochzero store run.db --backup copy.db

    epochzero store damaged.db --salvage saved.db
    """
    if saved is not None:
        rescued = salvage(path, saved)
        err.print(
            f"saved   {rescued.scores:,} scores, {rescued.steps:,} steps of {rescued.runs:,} runs; "
            + (f"damaged: {', '.join(rescued.damaged)}" if rescued.damaged else "no damage was met")
        )
        path = saved
    if not more and not path.is_file():
        raise UserError(f"There is no store '{path}'.")
    with Store.open(path) as opened:
        for source in more or ():
            err.print(f"added   {add(opened, source):,} new scores of {source}")
        count = opened.run_count()
        runs = opened.runs(None if json or not last else last)
        if to is not None:
            export(opened, to)
        if backup is not None:
            opened.backup(backup)
    if json:
        print_json({"runs": [{"id": r.id, "kind": r.kind, "state": r.state, "settings": r.settings} for r in runs]})
        return
    table = plain_table("run", "kind", "state", "settings")
    for run in runs:
        settings = ", ".join(f"{key}={value}" for key, value in run.settings.items() if value not in (None, {}))
        table.add_row(run.id, run.kind, run.state, settings)
    out.print(table)
    if len(runs) < count:
        err.print(f"{count - len(runs):,} earlier runs: --last 0 shows all", style="dim")
    for what, file in {"scores": to, "backup": backup}.items():
        if file is not None:
            err.print(f"{what}  {file}")
