"""`epochzero analyze theorems`: theorems of the thesis on wide and deep cells, tested on random linear cells."""

from __future__ import annotations

from statistics import median
from typing import Annotated

import typer

from epochzero.cli.analyze.subjects import Out, say_written, write
from epochzero.cli.console import number, out, print_json
from epochzero.cli.options import AsJson, Seed
from epochzero_papers.thesis import theorems as proved


def theorems(
    cells: Annotated[int, typer.Option(min=1, max=10_000, help="Random linear cells to try.")] = 100,
    nodes: Annotated[int, typer.Option(min=1, max=10, help="Inner nodes of each, or layers.")] = 4,
    size: Annotated[int, typer.Option(min=2, max=20, help="Numbers in each node.")] = 5,
    scale: Annotated[float, typer.Option(min=1e-6, max=1e6, help="Of the weights, N(0, scale^2 / size).")] = 1.0,
    seed: Seed = 0,
    out_dir: Out = None,
    json: AsJson = False,
) -> None:
    """Do theorems 4.3, 4.4 and 7.4 of the thesis hold? In how many random linear cells each block breaks its bound.

    Their proofs assume an objective that is linear in the nodes; a quadratic one shows what happens otherwise.
    """
    broken = {
        name: {
            objective: proved.broken(against, function, range(seed, seed + cells), nodes, size, scale)
            for objective, function in (("linear", proved.linear), ("quadratic", proved.quadratic))
        }
        for name, against in (("4.3", proved.against_theorem_4_3), ("4.4", proved.against_theorem_4_4))
    }
    wide, deep = proved.conditions(range(seed, seed + cells), nodes, size)
    report = {"cells": cells, "broken": broken, "kappa": {"wide": wide, "deep": deep}, "seed": seed}
    files = write(out_dir, "theorems", report, {})
    if json:
        print_json(report | {"files": files})
        return
    for name, of in broken.items():
        for objective, times in of.items():
            each = ", ".join(map(str, times))
            out.print(f"theorem {name}, {objective:9} objective: broken in {each} of {cells} cells, block by block")
    told = f"median kappa {number(median(wide))} of wide networks, {number(median(deep))} of deep ones"
    out.print(f"theorem 7.4: {told} (1 is what it says of wide ones)")
    say_written(files)
