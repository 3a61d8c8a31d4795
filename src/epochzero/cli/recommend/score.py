"""`epochzero recommend score`: one network on these clicks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from epochzero import recommend
from epochzero.cli.console import out, print_json, score_json, score_table
from epochzero.cli.options import AsJson, ClickOptions, Device, Plugins, ProxyNames, Seed, Threads, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.options import OwnOptions, RecommenderSpace, SearchedData, remarks_shown, shown_progress
from epochzero.objectives.objective import parse_objective
from epochzero.quantities import key_values


@spread
def score(
    data: SearchedData,
    reading: ClickOptions,
    arch: Annotated[str, typer.Option("--arch", help="Architecture, in the space's own text.")],
    proxy: ProxyNames = "sigeo",
    space: RecommenderSpace = "nasrec_small",
    option: OwnOptions = None,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Score one network on a table of clicks.

    epochzero recommend score --data criteo.tsv --schema criteo --arch ARCH --proxy sigeo,zico

    The exit code is 1 if no score could be computed.
    """
    load_plugins(plugin)
    with remarks_shown(), shown_progress("score") as bar:
        given: dict[str, Any] = {"seed": seed, "device": device, "options": key_values(option or [])}
        scores = recommend.score(data, arch, proxies=proxy, space=space, **given, **asdict(reading), progress=bar)
    proxies = [parse_objective(text).proxies[0] for text in scores]
    if json:
        print_json(
            {"arch": arch, "scores": {one.text: score_json(one, scores[one.text]) for one in proxies}, "seed": seed}
        )
    else:
        out.print(score_table(proxies, scores))
    if all(one.status == "failed" for one in scores.values()):
        raise typer.Exit(1)
