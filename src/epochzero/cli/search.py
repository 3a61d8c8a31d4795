"""`epochzero search`: the main job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.cli.console import progress_bar
from epochzero.cli.feedback import trained_by
from epochzero.cli.inside import PARTS, check_inside, searched_inside
from epochzero.cli.options import (
    Address,
    AsJson,
    BadLines,
    BatchSize,
    Classes,
    Device,
    ExecutorName,
    Gpus,
    Init,
    InputShape,
    Plugins,
    Seed,
    SpaceName,
    StorePath,
    Threads,
    Workers,
    options,
)
from epochzero.cli.options import (
    executor as executor_,
)
from epochzero.cli.pareto import check_front, end_front
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.old_spelling import searched as searched_clicks
from epochzero.cli.winner import check_tower, end_search, known_of, scored_winner, winner_proxies
from epochzero.data.batch import USUAL_PARTS
from epochzero.errors import MachineError, UnknownNameError, UserError
from epochzero.files import made_folder
from epochzero.hardware.latency import timed
from epochzero.objectives.goals import Goals, parse_goals
from epochzero.objectives.objective import Objective, looked_up, parse_objective
from epochzero.quantities import count, shape
from epochzero.registry import near_miss, searches, spaces
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.study.front import Front
from epochzero.study.inside import INTERRUPTED
from epochzero.study.loop import Outcome, budget_of, run_search
from epochzero.study.networks import batch_for
from epochzero.study.result import nothing_found
from epochzero.study.sources import UNHELD, Feedback, TableSource
from epochzero.study.task import Task
from epochzero.supernet import methods
from epochzero.types import Origin

USUAL_BATCH = 64
UNLIMITED = 10**9
"""networks where the time alone is limited"""


def search(
    context: typer.Context,
    space: SpaceName = "nb201",
    proxy: Annotated[
        str,
        typer.Option(
            "--proxy",
            help="What to search by: `epochzero list proxies`, or table:COLUMN of the --table; of recommenders, sigeo "
            "unless told.",
        ),
    ] = "dextr",
    objectives: Annotated[
        str | None,
        typer.Option(
            "--objectives",
            help="Several at once in place of --proxy: dextr,-flops,latency (-: as little as possible, +: as much).",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="`epochzero list searches`; default: evolution, or pareto for --objectives."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            help="Networks to evaluate, or steps of nasi and zero_cost_pt; default: the method's own, or 300, or no "
            "limit but time.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds after which no further networks are looked at.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=1,
            max=100,
            help="How many of the best to show; of recommenders, how many to train; not for --objectives.",
        ),
    ] = None,
    max_params: Annotated[str | None, typer.Option("--max-params", help="Most parameters: 1.5M.")] = None,
    max_flops: Annotated[str | None, typer.Option("--max-flops", help="Most multiply-accumulates: 450M.")] = None,
    max_latency_ms: Annotated[
        float | None,
        typer.Option("--max-latency-ms", help="Most milliseconds for one batch, at the upper end of a 95 % interval."),
    ] = None,
    latency: Annotated[
        str,
        typer.Option(
            "--latency", help="Who tells latencies: torch or onnxruntime, measured here, or table:FILE:COLUMN."
        ),
    ] = "torch",
    latency_batch: Annotated[int, typer.Option("--latency-batch", help="Samples in the batch that is timed.")] = 1,
    feedback: Annotated[
        str | None,
        typer.Option(
            "--feedback",
            help="In place of --proxy, a short training on half of --data, judged by the other half: a recipe of "
            "`epochzero train`, hnas(epochs=1,images=2000).",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            help="Accuracies of known networks, for table:COLUMN and to look up those of the winner or the front.",
        ),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option("--pool", help="Score table (.parquet, .csv): search among its networks, by its scores."),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="pink or white noise, an .npz file (x, y), or a CIFAR archive or folder; for recommenders a table of "
            "clicks with its --schema, or synthetic:2000 for so many generated rows; default: pink, or synthetic.",
        ),
    ] = "pink",
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="For recommenders: --data is a table of clicks (criteo, avazu, a .json file)."),
    ] = None,
    bad_lines: BadLines = "strict",
    warmup: Annotated[
        float, typer.Option("--warmup", help="For recommenders: share of an epoch that the supernet is trained for.")
    ] = 0.01,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="For recommenders: published sizes, or reduced ones for two cores; default: published, but reduced "
            "where no --data is given.",
        ),
    ] = None,
    input_shape: InputShape = None,
    batch_size: BatchSize = USUAL_BATCH,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of the method: population=100. May be repeated."),
    ] = None,
    store: StorePath = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the winner's drawing, code and facts.")
    ] = None,
    auxiliary: Annotated[
        bool, typer.Option("--auxiliary", help="Give model.py the auxiliary tower of a DARTS network, for training.")
    ] = False,
    winner_scores: Annotated[
        str,
        typer.Option(
            "--winner-scores",
            help="What scores the winner beside --proxy: none, all quick proxies, or auto: all, but of a large winner, "
            "and when time is up, those alone that need no run.",
        ),
    ] = "auto",
    executor: ExecutorName = "local",
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
    gpus: Gpus = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Search a space for the network that a proxy likes best, within a budget, before anything is trained.

    epochzero search --space nb201 --proxy dextr --budget 300 --max-params 1M --store run.db --out winner

    epochzero search --method hnas --option metric=snip --proxy table:cifar10_val_12ep --table nb201.csv.gz
    --pool scores.parquet --top 15

    epochzero search --objectives "dextr,-flops,latency" --budget 1000 --store run.db --out front

    epochzero search --space nasrec_small --data criteo.tsv --schema criteo --proxy sigeo --warmup 0.01

    Stopped at any moment, the same command with the same store goes on where it was and ends as if undisturbed.
    Ctrl-C and --time-limit end it with what was found so far.
    The winner is scored by every quick proxy; a large one, or when time is up, by those alone that need no run, unless
    --winner-scores all.
    """
    load_plugins(plugin)
    if searched_clicks(context):
        return
    goals = None if objectives is None else parse_goals(objectives)
    method = method or ("evolution" if goals is None else "pareto")
    inside = method in methods
    if inside:
        limited = {"--max-params": max_params, "--max-flops": max_flops, "--max-latency-ms": max_latency_ms}
        check_inside(method, {"--objectives": objectives, **limited, "--pool": pool, "--executor": executor})
    _check_winner(goals, winner_scores, {"--top": top, "--auxiliary": auxiliary or None})
    evaluations = _evaluations(budget, time_limit, method, space, option or [])
    found = spaces[space]
    trainer = trained_by(
        feedback, method, found, data, seed, device, {"--objectives": objectives, "--executor": executor}
    )
    objective = _objective(proxy, goals, trainer)
    scored = None if pool is None else TableSource.read(pool, found, pool=True)
    accuracies = None if table is None else TableSource.read(table, found)
    batch = batch_for(
        found,
        data,
        input_shape=shape(input_shape),
        num_classes=classes,
        size=batch_size,
        parts=PARTS if inside else USUAL_PARTS,
        seed=seed,
    )
    crew = executor_(executor, workers, threads, address, gpus, device, plugin)
    sources = tuple(source for source in (scored, accuracies, trainer) if source is not None)
    task = Task(found, objective.proxies, batch, Origin(init, seed), device, crew, sources)
    task, most = timed(task, latency, latency_batch, threads, max_latency_ms)
    limits = Budget(count(max_params, "--max-params"), count(max_flops, "--max-flops"))
    if auxiliary:
        check_tower(task, out_dir)
    folder = None if out_dir is None else made_folder(out_dir)
    with crew, Store.open(store or ":memory:") as opened:
        kept: dict[str, Any] = {
            "seed": seed,
            "options": options(option or []),
            "store": opened,
            "time_limit": time_limit,
        }
        if inside:
            outcome, more = searched_inside(task, method, budget, objective=objective, **kept)
        else:
            by: dict[str, Any] = {"objective": goals or objective, "budget": limits, "latency": most}
            outcome, more = _shown(partial(run_search, task, method, evaluations, **by, **kept), evaluations), {}
        if outcome.best is None:
            raise _nothing_found(outcome, None if pool else table)
        if isinstance(outcome, Front):
            end_front(outcome, most, accuracies, folder, store, json)
        else:
            which = "none" if outcome.stopped == INTERRUPTED else winner_scores
            scores, winner_seconds = scored_winner(outcome, winner_proxies(outcome, which), opened)
            more |= {"winner_seconds": winner_seconds}
            if most is not None:
                more["latency"] = most.about(outcome.winner.arch)
            if accuracies is not None:
                more |= {"known": known_of(outcome.winner.text, accuracies), "table": accuracies.name}
            end_search(outcome, scores, more, top=top or 1, auxiliary=auxiliary, folder=folder, store=store, json=json)
    if outcome.stopped == INTERRUPTED:
        raise typer.Exit(130)


def _shown(run: Callable[..., Outcome], total: int) -> Outcome:
    """Run a search with a bar; after Ctrl-C, what it found so far."""
    met: list[Outcome] = []
    limited = total < UNLIMITED
    with progress_bar("search", estimate=limited) as bar:

        def update(outcome: Outcome) -> None:
            met[:] = [outcome]
            bar(outcome.evaluated, total if limited else None, outcome.note or outcome.headline)

        try:
            return run(progress=update)
        except KeyboardInterrupt:
            if not met or met[0].best is None:
                raise
            met[0].stopped = INTERRUPTED
            return met[0]


def _check_winner(goals: Goals | None, scores: str, given: Mapping[str, object]) -> None:
    """UserError for options about one winner that cannot be, or that mean nothing to a front."""
    if scores not in ("auto", "all", "none"):
        raise UserError(f"--winner-scores takes auto, all or none, not {scores!r}.")
    if goals is not None:
        check_front({**given, "--winner-scores": scores if scores == "all" else None})


def _nothing_found(outcome: Outcome, table: Path | None) -> UserError | MachineError:
    """What to raise; where a table holds too few of the space's networks, with what to do about it."""
    error = nothing_found(outcome)
    if table is None or UNHELD not in str(error):
        return error
    return MachineError(f"{error}. --pool {table} looks at its networks alone.")


def _objective(proxy: str, goals: Goals | None, trainer: Feedback | None) -> Objective:
    """What the networks are scored by."""
    if trainer is not None:
        return Objective((looked_up(trainer.name),))
    return parse_objective(proxy) if goals is None else Objective(goals.proxies)


def _evaluations(budget: int | None, time_limit: float | None, method: str, space: str, option: list[str]) -> int:
    """How many networks to evaluate; what cannot be is said before anything is read."""
    if method not in methods and method not in searches:
        known = sorted([*searches, *methods])
        raise UnknownNameError(f"No search is called '{method}'.{near_miss(method, known)} Known: {', '.join(known)}.")
    if time_limit is not None and not time_limit > 0:
        raise UserError(f"--time-limit takes more than 0 seconds, not {time_limit:g}.")
    if budget is not None and budget < 1:
        unit = "step" if method in methods else "evaluation"
        raise UserError(f"A search needs a budget of at least 1 {unit}, not {budget}.")
    if method in methods:
        return UNLIMITED
    if budget is None:
        return UNLIMITED if time_limit is not None else budget_of(method, spaces[space], options(option))
    return budget
