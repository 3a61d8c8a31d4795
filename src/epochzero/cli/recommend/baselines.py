"""`epochzero recommend baselines`: models made by hand, trained for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epochzero import recommend
from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.options import AsJson, Device, Seed
from epochzero.cli.recommend.options import (
    OUTPUT,
    SIZES,
    BadLines,
    Epochs,
    Schema,
    SearchedData,
    TrainingBatch,
    TrainingOption,
    remarks_shown,
    training_options,
)

NAMES = "dlrm,deepfm,xdeepfm,autoint+"


def baselines(
    data: SearchedData,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for baselines.json and checkpoints.", rich_help_panel=OUTPUT)
    ],
    names: Annotated[
        str, typer.Option("--models", help="Models to train, separated by commas.", rich_help_panel=SIZES)
    ] = NAMES,
    schema: Schema = None,
    bad_lines: BadLines = "strict",
    epochs: Epochs = None,
    batch_size: TrainingBatch = None,
    option: TrainingOption = None,
    seed: Seed = 0,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train DLRM, DeepFM, xDeepFM and AutoInt+ on the same rows, and print their log loss and AUC.

    epochzero recommend baselines --data clicks --out baselines

    On the folder of a search they are trained as its networks were. Stopped at any moment, the same command resumes.
    """
    changes = training_options(epochs, batch_size, option)
    with remarks_shown(), progress_bar("train") as bar:
        rows = recommend.baselines(
            data,
            out=out_dir,
            names=[name.strip() for name in names.split(",")],
            schema=schema,
            bad_lines=bad_lines,
            options=changes,
            seed=seed,
            device=device,
            progress=bar,
        )
    if json:
        print_json({"baselines": rows, "seed": seed})
        return
    shown = Table("model", "params", "val log loss", "test log loss", "test AUC", box=None, header_style="dim")
    for row in rows:
        val, test = (row.get(part, {"log_loss": float("nan"), "auc": float("nan")}) for part in ("val", "test"))
        shown.add_row(
            row["name"],
            millions(row["params"]),
            *(f"{value:.4f}" for value in (val["log_loss"], test["log_loss"], test["auc"])),
        )
    out.print(shown)
    out.print("params with the embeddings", style="dim")
    err.print(f"\nresults  {out_dir}/baselines.json and checkpoints", soft_wrap=True)
