"""`epochzero recommend rank`: which of several networks to train on these clicks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from epochzero import recommend
from epochzero.cli.options import AsJson, ClickOptions, Device, Plugins, Threads, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.rank import print_ranking
from epochzero.cli.recommend.options import OwnOptions, RecommenderSpace, SearchedData, remarks_shown, shown_progress
from epochzero.quantities import key_values


@spread
def rank(
    data: SearchedData,
    reading: ClickOptions,
    archs: Annotated[list[str] | None, typer.Argument(help="Architectures of the space.")] = None,
    random: Annotated[int, typer.Option("--random", min=0, help="Random networks to rank with them.")] = 0,
    proxy: Annotated[str, typer.Option("--proxy", help="Score to rank by, or several by rank(sigeo,zico).")] = "sigeo",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Draws of weights and rows.")] = 3,
    space: RecommenderSpace = "nasrec_small",
    option: OwnOptions = None,
    device: Device = "cpu",
    threads: Threads = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Rank networks by a score on a table of clicks, over several draws of weights and rows.

    epochzero recommend rank --data criteo.tsv --schema criteo --random 20 --proxy zico
    """
    load_plugins(plugin)
    with remarks_shown(), shown_progress("rank") as bar:
        given: dict[str, Any] = {"random": random, "proxy": proxy, "seeds": seeds, "space": space, "device": device}
        given |= asdict(reading) | {"options": key_values(option or [])}
        ranking = recommend.rank(data, archs or [], **given, progress=bar)
    print_ranking(ranking, json)
