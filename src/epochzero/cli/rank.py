"""`epochzero rank`: which of several networks to train."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

import epochzero as ez
from epochzero.cli.console import err, number, out, print_aligned, print_json, progress_bar
from epochzero.cli.options import (
    AsJson,
    Device,
    Init,
    Log,
    Plugins,
    SampleOptions,
    StorePath,
    Strict,
    Threads,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins, space_name
from epochzero.errors import UserError
from epochzero.hardware.timing import Timing
from epochzero.objectives.auto import DEFAULT
from epochzero.quantities import shape
from epochzero.study.ranking import Ranked, Ranking
from epochzero.study.winners import train_command, winners


@panel("Networks")
class NetworkOptions:
    space: Annotated[str | None, Option(callback=space_name, help="Space of the networks that are architectures.")] = (
        None
    )
    output: Annotated[str | None, Option(help="Which part of their output: a name or index, or a path heads.0.")] = None
    init: Init = "default"


@panel("Score")
class ScoreOptions:
    proxy: Annotated[str, Option(help="Score to rank by, or several by rank(dextr,zico).")] = DEFAULT
    seeds: Annotated[int, Option(min=1, help="Draws of weights and data.")] = 3
    latency: Annotated[
        str | None, Option(help="Also measure latency: torch, onnxruntime, or 'command:./run {onnx}'.")
    ] = None


@spread
def rank(
    networks: Annotated[
        list[str], Argument(help="file.py:NAME of a function, module, dictionary or list; timm:NAME; architectures.")
    ],
    which: NetworkOptions,
    by: ScoreOptions,
    samples: SampleOptions,
    store: StorePath = None,
    log: Log = None,
    device: Device = "cpu",
    threads: Threads = None,
    strict: Strict = False,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Rank networks by a score over several draws of weights and data: which of them to train?

    epochzero rank nets.py:small nets.py:large --data images --seeds 5 --store ranks.db

    epochzero rank timm:resnet18 timm:mobilenetv3_small_100 --latency torch

    The table has sizes, peak memory, the mean score with its spread, groups that do not differ significantly, and the
    place of each network if multiply-accumulates decided. With a store the same command resumes.
    """
    load_plugins(plugin)
    options: dict[str, Any] = (
        {"callbacks": log or ()} | vars(which) | vars(by) | vars(samples) | {"input_shape": shape(samples.input_shape)}
    )
    with progress_bar("rank") as bar:
        ranking = ez.rank(networks, store=store or ":memory:", device=device, threads=threads, progress=bar, **options)
    print_ranking(ranking, json)
    if store is not None and not json:
        with suppress(UserError):  # of a network without a file of its own
            winners(store)
            command = train_command(store, samples.data, ranking.task.batch.input_shape if ranking.task else ())
            err.print(f"next    {command}", soft_wrap=True, no_wrap=True)


def print_ranking(ranking: Ranking, json: bool) -> None:
    """Prints the ranking; the exit code is 1 without a score."""
    if json:
        print_json(ranking.to_json())
    else:
        _show(ranking)
    if not ranking.scored:
        raise typer.Exit(1)


def _show(ranking: Ranking) -> None:
    """Prints a line for each network; names come last, since architectures are long."""
    timed = any(row.latency is not None for row in ranking)
    heads = ["", "params", "flops", "MiB", *(["ms"] if timed else []), "by flops", ranking.text, "±", "group"]
    rows = ((_cells(place, row, timed), row.name, "") for place, row in enumerate(ranking.scored, 1))
    if ranking.scored:
        print_aligned([(heads, "", "dim"), *rows])
    for row in ranking:
        if row.status != "ok":
            out.print(Text.assemble(f"{row.name}  ", (f"{row.status}: {row.why}", "yellow")))
    out.print(f"\ndata    {ranking.about}")
    for sentence in ranking.sentences:
        err.print(sentence, style="dim", soft_wrap=True)


def _cells(place: int, row: Ranked, timed: bool) -> list[str]:
    memory = "" if row.memory is None else f"{row.memory / 2**20:.3g}"
    latency = str(row.latency).removesuffix(" ms") if isinstance(row.latency, Timing) else ""
    by_flops = "" if row.by_flops is None else f"{row.by_flops:g}"
    spread = "" if math.isnan(row.spread) else f"{row.spread:.2g}"
    sizes = [short(row.params), short(row.flops), memory, *([latency] if timed else []), by_flops]
    return [str(place), *sizes, number(row.value), spread, "" if row.group is None else str(row.group)]


def short(count: int | None) -> str:
    """`1.23 M`, or nothing for what cannot be counted."""
    if count is None:
        return ""
    power = next(((unit, size) for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if count >= size), ("", 1))
    return f"{count / power[1]:.3g} {power[0]}".strip()
