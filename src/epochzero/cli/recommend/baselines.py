"""`epochzero recommend baselines`: models designed by hand, trained for comparison."""

from __future__ import annotations

from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epochzero import recommend
from epochzero.cli.console import err, millions, out, print_json
from epochzero.cli.options import AsJson, ClickOptions, spread
from epochzero.cli.recommend.options import SearchedData, Training, remarks_shown, shown_progress


@spread
def baselines(
    data: SearchedData,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for baselines.json and checkpoints.")],
    reading: ClickOptions,
    training: Training,
    models: Annotated[
        str, typer.Option("--models", help="Models to train, separated by commas.")
    ] = "logistic,fm,dlrm,deepfm,xdeepfm,autoint+,dcnv2,trees",
    json: AsJson = False,
) -> None:
    """Train logistic regression, DLRM, trees and others on the same rows, and print their log loss and AUC.

    epochzero recommend baselines --data clicks --out baselines

    On the folder of a search they are trained as its networks were. Stopped at any moment, the same command resumes.
    """
    with remarks_shown(), shown_progress("train") as bar:
        names = [name.strip() for name in models.split(",")]
        rows = recommend.baselines(data, out=out_dir, names=names, **asdict(reading), **training.given, progress=bar)
    if json:
        print_json({"baselines": rows, "seed": training.seed})
        return
    shown = Table("model", "params", "val log loss", "test log loss", "test AUC", box=None, header_style="dim")
    for row in rows:
        val, test = (row.get(part, {"log_loss": nan, "auc": nan}) for part in ("val", "test"))
        metrics = (f"{value:.4f}" for value in (val["log_loss"], test["log_loss"], test["auc"]))
        shown.add_row(row["name"], millions(row["params"]) if row["params"] else "", *metrics)
    out.print(shown)
    out.print("params with the embeddings", style="dim")
    err.print(f"\nresults  {out_dir}/baselines.json and checkpoints", soft_wrap=True)
