"""`epochzero recommend train`: the network of a search, or any other, trained and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero import recommend
from epochzero.cli.console import err, millions, number, out, plain_table, print_json
from epochzero.cli.options import AsJson, ClickOptions, Plugins, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.options import RecommenderSpace, SearchedData, Training, remarks_shown, shown_progress


@panel("Measures")
class Measured:
    """Further measures of a training."""

    group: Annotated[str | None, typer.Option("--group", help="Column, such as a user, of a grouped AUC.")] = None
    segment: Annotated[
        str | None, typer.Option("--segment", help="Column whose values are measured one by one: rate, AUC, lift.")
    ] = None
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Fit a temperature on validation rows; `predict` then divides by it.")
    ] = False


@spread
def train(
    data: SearchedData,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the recommender and its checkpoint.")],
    reading: ClickOptions,
    training: Training,
    measured: Measured,
    arch: Annotated[str | None, typer.Option("--arch", help="Architecture; default: the best of the search.")] = None,
    space: RecommenderSpace = "nasrec_small",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Train a recommender, measure it on validation and test rows, and keep it.

    epochzero recommend train --data clicks --out run

    A network that the search has trained already is taken over. Stopped at any moment, the same command resumes.
    """
    from epochzero.recommend.training.quality import in_words

    load_plugins(plugin)
    with remarks_shown(), shown_progress("train") as bar:
        given = asdict(reading) | training.given | {"measures": recommend.Measures(**asdict(measured))}
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
    for part, quality in report["quality"].items():
        out.print(f"{part:14} {in_words(quality)}")
    if measured.temperature:
        out.print(f"temperature    {report['temperature']:.4g}, of the validation rows")
    if measured.segment is not None and report["quality"]:
        _show_segments(report["quality"])
    err.print(f"\n{report['steps']:,} steps, {report['seconds']:.1f} s of this call")
    err.print(f"recommender  {out_dir}/recommender.json, encoding.json and training.pt", soft_wrap=True)


def _show_segments(quality: Mapping[str, Any]) -> None:
    """The segments of the test rows, or of validation rows without those."""
    part, measured = list(quality.items())[-1]
    shown = plain_table(measured["segments"]["column"], numbers=(f"{part} rows", "clicks", "predicted", "AUC", "lift"))
    for one in measured["segments"]["values"]:
        figures = (number(one[key]) if isfinite(one[key]) else "none" for key in ("rate", "predicted", "auc", "lift"))
        shown.add_row(one["value"], f"{one['rows']:,}", *figures)
    out.print()
    out.print(shown)
