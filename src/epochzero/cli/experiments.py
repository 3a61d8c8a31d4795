"""The list of experiments that `epochzero list experiments` and `epochzero reproduce --list` print."""

from __future__ import annotations

from epochzero.cli.console import out, plain_table, print_json
from epochzero.cli.loading import missing_papers
from epochzero.registry import experiments

DATA_FOLDER = "data"


def show_experiments(folder: str, json: bool) -> None:
    """Print every experiment, with whether the data in a folder are enough for it."""
    if not experiments:
        raise missing_papers("No experiment is installed: those of the papers come")
    rows = [
        {
            "name": name,
            "status": one.status(folder),
            "source": one.source,
            "about": one.about,
            "origin": experiments.origins[name],
        }
        for name, one in experiments.items()
    ]
    if json:
        print_json({"experiments": rows})
        return
    shown = plain_table("name", "status", "about")
    shown.columns[0].no_wrap = shown.columns[1].no_wrap = True
    for row in rows:
        style = "dim" if row["status"] == "planned" else ""
        shown.add_row(row["name"], row["status"], row["about"], style=style)
    out.print(shown)
    out.print(
        f"\nData are looked for in '{folder}'. part: some are missing there, and the rest runs. planned: out of reach "
        "here. Source, protocol and the paper's figures: epochzero reproduce NAME --about",
        style="dim",
    )
