"""`epochzero analyze topology`: width and depth of a cell and its variants."""

from __future__ import annotations

from random import Random
from typing import Annotated, Any

import typer

from epochzero.analysis.topology import CELLS, random_connections, random_operations, topologies, widest
from epochzero.cli.analyze.subjects import Out, say_written, write
from epochzero.cli.console import out, print_json
from epochzero.cli.options import AsJson, From, Plugins, Seed
from epochzero.cli.plugin import load_plugins, space_name
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.genotypes import Genotype
from epochzero.study.winners import only_winner


def topology(
    arch: Annotated[
        str | None, typer.Option("--arch", help=f"Architecture, or a known cell: {', '.join(CELLS)}.")
    ] = None,
    source: From = None,
    space: Annotated[str, typer.Option("--space", callback=space_name, help="Space of the architecture.")] = "darts",
    variants: Annotated[int, typer.Option("--variants", min=0, max=10_000, help="Random ones of each kind.")] = 0,
    seed: Seed = 0,
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Width and depth of a cell, of its widest form, and of random variants of its connections and operations.

    epochzero analyze topology --arch DARTS --variants 13
    """
    load_plugins(plugin)
    if (arch is None) == (not source):
        raise UserError("Give either --arch or --from.")
    if source:
        space, arch = only_winner(source)
    assert arch is not None
    of_space = spaces[space]
    value: Any = CELLS[arch] if arch in CELLS and space.startswith(("darts", "nb301")) else of_space.parse(arch)
    rows = _shapes("as it is", of_space, value)
    if isinstance(value, Genotype):
        rows += _shapes("widest", of_space, widest(value))
    rng = Random(seed)
    for kind, draw in (("connections", random_connections), ("operations", random_operations)):
        for _ in range(variants):
            rows += _shapes(f"other {kind}", of_space, draw(value, rng))
    report = {"space": space, "arch": of_space.text(value), "cells": rows, "seed": seed}
    files = write(out_dir, "topology", report, {})
    if json:
        print_json(report | {"files": files})
        return
    out.print(of_space.text(value), style="bold")
    for row in rows:
        out.print(f"{row['variant']:18} {row['cell']:10} width {row['width']:g}c   depth {row['depth']}")
    say_written(files)


def _shapes(variant: str, space: Any, arch: Any) -> list[dict[str, Any]]:
    return [
        {"variant": variant, "cell": name, "width": shape.width, "depth": shape.depth, "arch": space.text(arch)}
        for name, shape in topologies(arch).items()
    ]
