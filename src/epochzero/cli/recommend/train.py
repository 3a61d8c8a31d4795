"""`epochzero recommend train`: the network of a search, or any other, trained and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epochzero import recommend
from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.options import AsJson, Device, Plugins, Seed
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.options import (
    OUTPUT,
    BadLines,
    Epochs,
    RecommenderSpace,
    Schema,
    SearchedData,
    TrainingBatch,
    TrainingOption,
    metrics_text,
    remarks_shown,
    training_options,
)


def train(
    data: SearchedData,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for the recommender and its checkpoint.", rich_help_panel=OUTPUT)
    ],
    schema: Schema = None,
    bad_lines: BadLines = "strict",
    arch: Annotated[
        str | None,
        typer.Option("--arch", help="Architecture; default: the best of the search.", rich_help_panel="Network"),
    ] = None,
    space: RecommenderSpace = "nasrec_small",
    epochs: Epochs = None,
    batch_size: TrainingBatch = None,
    option: TrainingOption = None,
    seed: Seed = 0,
    device: Device = "cpu",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Train a recommender, measure it on validation and test rows, and keep it.

    epochzero recommend train --data clicks --out run

    What the search has trained already is taken over. Stopped at any moment, the same command resumes.
    """
    load_plugins(plugin)
    changes = training_options(epochs, batch_size, option)
    with remarks_shown(), progress_bar("train") as bar:
        report = recommend.train(
            data,
            out=out_dir,
            arch=arch,
            space=space,
            schema=schema,
            bad_lines=bad_lines,
            options=changes,
            seed=seed,
            device=device,
            progress=bar,
        )
    if json:
        print_json(report)
        return
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}, and {millions(report['embedding_params'])} of embeddings")
    share = "" if report["share"] == 1 else f", {100 * report['share']:g} % of them all"
    out.print(f"data           {report['rows']['train']:,} training rows{share}")
    for part, metrics in report["metrics"].items():
        out.print(f"{part:14} {metrics_text(metrics)}")
    err.print(f"\n{report['steps']:,} steps, {report['seconds']:.1f} s of this call")
    err.print(f"recommender  {out_dir}/recommender.json, encoding.json and training.pt", soft_wrap=True)
