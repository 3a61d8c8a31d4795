"""`epochzero search`: the main job."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from epochzero.cli.console import progress_bar
from epochzero.cli.options import (
    AsJson,
    ClickOptions,
    Init,
    Log,
    RunningOptions,
    SampleOptions,
    Seed,
    SpaceName,
    StorePath,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins
from epochzero.cli.winner import check_tower, check_winner, end_search, no_score
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.objectives.auto import DEFAULT
from epochzero.quantities import key_values, shape
from epochzero.registry import searches, spaces
from epochzero.store import Store
from epochzero.study.loop import FittedToTable
from epochzero.study.result import INTERRUPTED, Result
from epochzero.study.search import UNLIMITED, SearchSettings, prepare
from epochzero.study.sources import Feedback


@panel("Search")
class SearchOptions:
    space: SpaceName = "nb201"
    proxy: Annotated[
        str,
        Option(
            help="Score to search by: auto, one of `epochzero list proxies`, several by rank, dextr,zico, or "
            "table:COLUMN of the --table."
        ),
    ] = DEFAULT
    objectives: Annotated[
        str | None,
        Option(help="Several at once in place of --proxy: auto,-flops,latency (-: as little as possible, +: as much)."),
    ] = None
    method: Annotated[
        str | None, Option(help="`epochzero list searches`; default: evolution, or pareto for --objectives.")
    ] = None
    option: Annotated[list[str] | None, Option(help="An option of the method: population=100. May be repeated.")] = None
    ahead: Annotated[
        int,
        Option(
            help="Batches asked for before the scores of the first are told: workers wait less, the method chooses by "
            "older scores."
        ),
    ] = 0


@panel("Limits")
class LimitOptions:
    budget: Annotated[
        int | None,
        Option(
            help="Networks to evaluate, or steps of nasi and zero_cost_pt; default: the method's own, or 300, or no "
            "limit but time."
        ),
    ] = None
    time_limit: Annotated[float | None, Option(help="Seconds after which no further networks are evaluated.")] = None
    max_params: Annotated[str | None, Option(help="Most parameters: 1.5M.")] = None
    max_flops: Annotated[str | None, Option(help="Most multiply-accumulates: 450M.")] = None
    max_weight_bytes: Annotated[str | None, Option(help="Most bytes of weights: 512k.")] = None
    max_activation_bytes: Annotated[
        str | None, Option(help="Most bytes of the input and all values that are alive at once, for one sample.")
    ] = None
    max_peak_memory: Annotated[str | None, Option(help="Most bytes of weights and activations together.")] = None
    max_kv_bytes: Annotated[str | None, Option(help="Most bytes of a decoder's cache of keys and values.")] = None
    byte_width: Annotated[int, Option(help="Bytes of a weight and of an activation: 4, 2, or 1 for 8 bits.")] = 4
    max_latency_ms: Annotated[
        float | None, Option(help="Most milliseconds for one batch, at the upper end of a 95 % interval.")
    ] = None
    min_throughput: Annotated[
        float | None, Option(help="Least samples a second in batches of --latency-batch, at the same end.")
    ] = None
    latency: Annotated[
        str,
        Option(
            help="Latency source: torch or onnxruntime, measured here; table:FILE:COLUMN; or 'command:./run {onnx}', a "
            "program that prints the milliseconds of each run."
        ),
    ] = "torch"
    max_energy: Annotated[float | None, Option(help="Most energy, in the unit of the table of --energy.")] = None
    energy: Annotated[str | None, Option(help="Energy of known networks: table:FILE:COLUMN.")] = None
    latency_batch: Annotated[int, Option(help="Samples in the batch that is timed.")] = 1
    pool: Annotated[
        Path | None, Option(help="Score table (.parquet, .csv): search among its networks, by its scores.")
    ] = None


@panel("Scoring")
class ScoringOptions:
    seed: Seed = 0
    init: Init = "default"
    feedback: Annotated[
        str | None,
        Option(
            help="In place of --proxy, a short training on half of --data, judged by the other half: a recipe of "
            "`epochzero train`, hnas(epochs=1,images=2000)."
        ),
    ] = None
    table: Annotated[
        Path | None,
        Option(help="Accuracies of known networks, for table:COLUMN and to look up those of the winner or the front."),
    ] = None
    winner_scores: Annotated[
        str,
        Option(
            help="Further scores of the winner: none, all quick proxies, or auto: all, but for a large winner, and "
            "when time is up, only those that need no run."
        ),
    ] = "none"


@panel("Output")
class OutputOptions:
    store: StorePath = None
    out_dir: Annotated[Path | None, Option("--out", help="Folder for the winner's drawing, code and facts.")] = None
    top: Annotated[int | None, Option(min=1, max=100, help="How many of the best to show; not for --objectives.")] = (
        None
    )
    auxiliary: Annotated[
        bool, Option("--auxiliary", help="Give model.py the auxiliary tower of a DARTS network, for training.")
    ] = False
    log: Log = None
    json: AsJson = False


@panel("Recommenders (now `epochzero recommend search`)")
class RecommenderOptions(ClickOptions):
    warmup: Annotated[float, Option(help="Share of an epoch that the supernet is trained for.")] = 0.01
    preset: Annotated[str | None, Option(help="published sizes, or reduced ones; default: reduced without --data.")] = (
        None
    )


@spread
def search(
    what: SearchOptions,
    limits: LimitOptions,
    data: SampleOptions,
    scoring: ScoringOptions,
    running: RunningOptions,
    output: OutputOptions,
    clicks: RecommenderOptions,
    context: typer.Context,
) -> None:
    """Search a space for the network with the best score, within a budget, before anything is trained.

    epochzero search --space nb201 --budget 300 --max-params 1M --store run.db --out winner

    epochzero search --method hnas --option metric=snip --proxy table:cifar10_val_12ep --table nb201.csv.gz
    --pool scores.parquet --top 15

    epochzero search --objectives "auto,-flops,latency" --budget 1000 --store run.db --out front

    Stopped at any moment, the same command with the same store resumes and ends as if it had not been stopped.
    Ctrl-C and --time-limit end it with the best network so far.
    --winner-scores all scores the winner by every quick proxy.
    """
    if running.plugin:
        load_plugins(running.plugin)
    for_clicks = clicks.schema is not None or data.data.partition(":")[0] == "synthetic"
    if for_clicks or isinstance(spaces[what.space], FittedToTable):
        from epochzero.cli.recommend.old_spelling import searched

        if searched(context):
            return
    check_winner(what.objectives, scoring.winner_scores, {"--top": output.top, "--auxiliary": output.auxiliary or None})
    crew = running.made()
    given: dict[str, Any] = {}
    for group in (what, limits, data, scoring, running):
        given |= vars(group)
    given |= {"data_seed": scoring.seed, "input_shape": shape(data.input_shape)}
    given["options"] = key_values(what.option or [])
    if scoring.feedback is not None:
        given["proxy"] = _feedback(scoring.feedback, what, data, scoring, running)
    names = {one.name for one in fields(SearchSettings)}
    prepared = prepare(SearchSettings(**{name: given[name] for name in names & given.keys()}), crew)
    if output.auxiliary:
        check_tower(prepared.task, output.out_dir)
    folder = None if output.out_dir is None else made_folder(output.out_dir)
    with crew, Store.open(output.store or ":memory:") as store:
        limited = prepared.budget != UNLIMITED
        with progress_bar(prepared.method if prepared.inside else "search", estimate=limited) as bar:

            def update(result: Result) -> None:
                bar(result.steps or result.evaluated, result.total if limited else None, result.note or result.headline)

            result = prepared.run(store, update, keep_interrupted=True, callbacks=output.log or ())
        if result.best is None:
            raise no_score(result, None if limits.pool else scoring.table)
        end_search(result, store, scoring.winner_scores, folder, output, data.data)
    if result.stopped == INTERRUPTED:
        raise typer.Exit(130)


def _feedback(
    recipe: str, what: SearchOptions, data: SampleOptions, scoring: ScoringOptions, running: RunningOptions
) -> Feedback:
    """The short training that scores networks; UserError for options that do not go with it."""
    from epochzero.data import NOISE
    from epochzero.supernet import methods
    from epochzero.train.feedback import ShortTraining

    if what.method is not None and what.method not in searches and what.method in methods:
        raise UserError(f"{what.method} evaluates no single networks, so --feedback means nothing to it: use guided.")
    for option, value in (("--objectives", what.objectives), ("--executor", running.executor)):
        if value not in (None, "auto", "local"):
            raise UserError(f"Networks are trained here, one after the other: leave out {option} with --feedback.")
    if data.data in NOISE:
        raise UserError(
            f"--feedback needs images with labels to train on, and {data.data} is noise: give --data FILE.npz."
        )
    trained = ShortTraining.of(recipe, spaces[what.space], Path(data.data), seed=scoring.seed, device=running.device)
    return Feedback(trained, trained.name)
