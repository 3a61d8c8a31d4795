"""`epochzero recommend export`: a trained recommender as a product."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epochzero import recommend
from epochzero.cli.console import millions
from epochzero.cli.options import AsJson
from epochzero.cli.product import show_product, with_status


def export(
    weights: Annotated[Path, typer.Option("--weights", help="Folder of `epochzero recommend train`.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for model.py, weights, ONNX and model card.")],
    data: Annotated[
        str | None,
        typer.Option("--data", help="A table of clicks whose first rows the checks take."),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx/--no-onnx", help="Write and check model.onnx.")] = True,
    json: AsJson = False,
) -> None:
    """Write a recommender as a product: code that needs torch alone, weights, checked ONNX, a model card, an encoder.

    epochzero recommend export --weights run --data criteo.tsv --out product

    Nothing is written unless printed code and ONNX Runtime agree with the network to 1e-4 on random and real rows.
    encoder.py turns rows of text into numbers without EpochZero; it is checked on the rows of --data.
    """
    from epochzero.recommend.recommender import Recommender

    kept = Recommender.read(weights)
    made = with_status(lambda say: recommend.export(weights, out_dir, data=data, onnx=onnx, say=say))
    facts = {"space": kept.space, "arch": kept.arch, "params": kept.plan.params, "flops": kept.plan.flops}
    lines = [f"params   {millions(kept.plan.params)}, embeddings included"]
    show_product(made, facts, [kept.arch], lines, out_dir, json=json)
