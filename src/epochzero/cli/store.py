"""`epochzero store`: the runs of a result store, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from epochzero.cli.console import err, out, plain_table, print_json
from epochzero.cli.options import AsJson
from epochzero.errors import UserError
from epochzero.store import Store, add, export


def store(
    path: Annotated[Path, Argument(help="The store, e.g. run.db.")],
    to: Annotated[Path | None, Option(help="Write every score to this file: .csv, .csv.gz or .parquet.")] = None,
    more: Annotated[
        list[Path] | None,
        Option("--add", help="Add the scores of such a file, or of all in a folder. May be repeated."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the runs in a result store, export its scores, or add those of another.

    epochzero store run.db --to scores.csv

    epochzero store run.db --add scores.csv
    """
    if not more and not path.is_file():
        raise UserError(f"There is no store '{path}'.")
    with Store.open(path) as opened:
        for source in more or ():
            err.print(f"added   {add(opened, source):,} new scores of {source}")
        runs = opened.runs()
        if to is not None:
            export(opened, to)
    if json:
        print_json({"runs": [{"id": r.id, "kind": r.kind, "state": r.state, "settings": r.settings} for r in runs]})
        return
    table = plain_table("run", "kind", "state", "settings")
    for run in runs:
        settings = ", ".join(f"{key}={value}" for key, value in run.settings.items() if value not in (None, {}))
        table.add_row(run.id, run.kind, run.state, settings)
    out.print(table)
    if to is not None:
        err.print(f"scores  {to}")
