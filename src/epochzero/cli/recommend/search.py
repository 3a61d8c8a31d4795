"""`epochzero recommend search`: from a table of clicks to trained networks."""

from __future__ import annotations

from dataclasses import asdict
from json import loads
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from epochzero import recommend
from epochzero.cli.console import err, millions, out, print_json
from epochzero.cli.options import AsJson, ClickOptions, Plugins, Seed, Strict, Threads, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.options import RecommenderSpace, remarks_shown, shown_progress
from epochzero.quantities import count, key_values


@panel("Search")
class Searching:
    """The space, and the way through it."""

    space: RecommenderSpace = "nasrec_small"
    proxy: Annotated[str, typer.Option("--proxy", help="Any proxy or combination, or one_shot.")] = "sigeo"
    method: Annotated[str, typer.Option("--method", help="evolution_nasrec, or random as a baseline.")] = (
        "evolution_nasrec"
    )
    warmup: Annotated[float, typer.Option("--warmup", help="Share of an epoch for which the supernet is trained.")] = (
        0.01
    )
    seed: Seed = 0


@panel("Sizes and limits")
class Sizes:
    """The sizes of the search and of its networks."""

    preset: Annotated[
        str | None,
        typer.Option("--preset", help="published, or reduced for two cores; default: by the number of rows."),
    ] = None
    recipe: Annotated[
        str, typer.Option("--recipe", help="Training in the end: tuned, or published for reproduction.")
    ] = "tuned"
    baselines: Annotated[
        str, typer.Option("--baselines", help="Models to compare with, separated by commas, or none; trees are one.")
    ] = "logistic,dlrm"
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds of the comparison; default: 3, or 1 for many rows.")
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="A size or setting: batch_size=256, highest=0.2. May be repeated."),
    ] = None
    top: Annotated[int | None, typer.Option("--top", min=1, max=100, help="Networks to train from scratch.")] = None
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Networks to score; default: those of the preset.")
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds of scoring after which no more networks are scored."),
    ] = None
    max_params: Annotated[
        str | None, typer.Option("--max-params", help="Most parameters outside the embeddings: 1.5M.")
    ] = None
    max_flops: Annotated[str | None, typer.Option("--max-flops", help="Most multiply-accumulates: 450M.")] = None


@spread
def search(
    reading: ClickOptions,
    searching: Searching,
    sizes: Sizes,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="A table of clicks with its --schema, the folder of one in numbers, or synthetic:ROWS, or "
            "synthetic:ROWS:LAW (pairs, third, network, mixed); default: 12,000 generated rows.",
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for results and checkpoints; default: runs/SPACE.")
    ] = None,
    threads: Threads = None,
    strict: Strict = False,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Search a recommender for a table of clicks, and train the best networks.

    epochzero recommend search --data criteo.tsv --schema criteo --warmup 0.01 --out clicks

    Stopped at any moment, the same command resumes and ends with the same result. `epochzero recommend train --data
    clicks` then keeps the best network.
    """
    load_plugins(plugin)
    folder = out_dir or Path("runs") / searching.space
    if out_dir is None:
        err.print(f"results go to {folder}; --out chooses another folder", soft_wrap=True)
    with remarks_shown(), shown_progress("search", estimate=False) as bar:
        result = recommend.search(
            data,
            out=folder,
            **asdict(reading),
            **asdict(searching),
            preset=sizes.preset,
            recipe=sizes.recipe,
            baselines=[one.strip() for one in sizes.baselines.split(",") if one.strip() not in ("", "none")],
            seeds=sizes.seeds,
            options=key_values(sizes.option or []) | ({} if sizes.top is None else {"top": sizes.top}),
            budget=sizes.budget,
            time_limit=sizes.time_limit,
            max_params=count(sizes.max_params, "--max-params"),
            max_flops=count(sizes.max_flops, "--max-flops"),
            progress=bar,
        )
    report = loads((folder / "result.json").read_text(encoding="utf-8"))
    if json:
        print_json(report)
        return
    out.print(f"{result.best.arch}\n", style="bold")
    shown = Table("", "score", "params", "val log loss", "test log loss", "test AUC", box=None, header_style="dim")
    for number, one in enumerate(result.candidates, start=1):
        mark = f"{number}{' random' if one.random else ''}{' *' if one is result.best else ''}"
        losses = (f"{value:.4f}" for value in (one.val_log_loss, one.test_log_loss, one.test_auc))
        shown.add_row(mark, "" if one.random else f"{one.score:.4g}", millions(one.params), *losses)
    out.print(shown)
    out.print("* lowest log loss on the validation rows; params without the embeddings", style="dim")
    compared = report["comparison"]
    for name, row in compared["baselines"].items():
        each = ", ".join(f"{value:.4f}" for value in row["test_log_loss"])
        out.print(f"{name:12} test log loss {each}")
    for sentence in compared["said"]:
        out.print(sentence, soft_wrap=True)
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in result.seconds.items())
    share = "" if report["share"] == 1 else f", {100 * report['share']:g} % of them all"
    err.print(f"\n{result.evaluated} networks evaluated by {result.objective}; {spent}", soft_wrap=True)
    err.print(f"{report['rows']['train']:,} training rows{share}", soft_wrap=True)
    err.print(f"\nresults  {folder}/result.json, choice.json, encoding.json and checkpoints", soft_wrap=True)
