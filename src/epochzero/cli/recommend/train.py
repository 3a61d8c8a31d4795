"""`epochzero recommend train`: the network of a search, or any other, trained and kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from epochzero import recommend
from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.options import AsJson, ClickOptions, Plugins, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.options import RecommenderSpace, SearchedData, Training, remarks_shown


@spread
def train(
    data: SearchedData,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the recommender and its checkpoint.")],
    reading: ClickOptions,
    training: Training,
    arch: Annotated[str | None, typer.Option("--arch", help="Architecture; default: the best of the search.")] = None,
    space: RecommenderSpace = "nasrec_small",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Train a recommender, measure it on validation and test rows, and keep it.

    epochzero recommend train --data clicks --out run

    A network that the search has trained already is taken over. Stopped at any moment, the same command resumes.
    """
    load_plugins(plugin)
    with remarks_shown(), progress_bar("train") as bar:
        given = asdict(reading) | training.given
        report = recommend.train(data, out=out_dir, arch=arch, space=space, **given, progress=bar)
    if json:
        print_json(report)
        return
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}, and {millions(report['embedding_params'])} of embeddings")
    share = "" if report["share"] == 1 else f", {100 * report['share']:g} % of them all"
    out.print(f"data           {report['rows']['train']:,} training rows{share}")
    for part, metrics in report["metrics"].items():
        area = metrics["why"] or f"AUC {metrics['auc']:.4f}"
        out.print(f"{part:14} log loss {metrics['log_loss']:.4f}, {area} ({metrics['rows']:,} rows)")
    err.print(f"\n{report['steps']:,} steps, {report['seconds']:.1f} s of this call")
    err.print(f"recommender  {out_dir}/recommender.json, encoding.json and training.pt", soft_wrap=True)
