"""The command `epochzero export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.console import err, millions
from epochzero.cli.export.ensemble import export_members
from epochzero.cli.options import AsJson, Init, Plugins, Seed
from epochzero.cli.plugin import load_plugins
from epochzero.cli.product import show_product, with_status
from epochzero.cli.recommend.old_spelling import exported as export_clicks
from epochzero.export import export as export_
from epochzero.export.ensemble import holds_ensemble
from epochzero.export.resolve import resolve
from epochzero.files import made_folder
from epochzero.quantities import shape
from epochzero.recommend.recommender import holds_recommender
from epochzero.types import Origin

NETWORK, DATA, OUTPUT = "Network", "Data", "Output"


def export(
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for model.py, weights, ONNX and model card.", rich_help_panel=OUTPUT)
    ],
    space: Annotated[
        str | None,
        typer.Option(
            "--space", help="Search space; default: that of weights or store, or nb201.", rich_help_panel=NETWORK
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option("--arch", help="Architecture; default: that of weights or store.", rich_help_panel=NETWORK),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="Export the winner of its last finished search, with its scores on the card.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            help="Folder of `epochzero train` or `ensemble`, a checkpoint, a state_dict or .safetensors.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            "--classes",
            "--num-classes",
            min=1,
            max=10**6,
            help="Default: those of weights, data or space.",
            rich_help_panel=DATA,
        ),
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option("--input-shape", help="3,224,224; default: that of weights, data or space.", rich_help_panel=DATA),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Real inputs for the check: an .npz file, a CIFAR archive or folder, or a folder of images by class.",
            rich_help_panel=DATA,
        ),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx/--no-onnx", help="Write and check model.onnx.", rich_help_panel=OUTPUT)
    ] = True,
    seed: Seed = 0,
    init: Init = "default",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Write a network as a product: code that needs torch alone, weights, checked ONNX, a model card.

    epochzero export --weights run --data cifar10.npz --out product

    Nothing is written unless printed code and ONNX Runtime agree with the network to 1e-4 on random and real inputs.
    """
    load_plugins(plugin)
    if weights is not None and (holds_recommender(weights) or holds_ensemble(weights)):
        unused = {
            "--space": space,
            "--arch": arch,
            "--store": store,
            "--classes": classes,
            "--input-shape": input_shape,
        }
        write = export_members if holds_ensemble(weights) else export_clicks
        write(weights, data, out_dir, unused=unused, onnx=onnx, json=json)
        return
    subject, real, refused = resolve(
        space,
        arch,
        store=store,
        weights=weights,
        data=data,
        classes=classes,
        input_shape=shape(input_shape),
        origin=Origin(init, seed),
    )
    folder = made_folder(out_dir)
    made = with_status(lambda say: export_(subject, folder, real=real, onnx=onnx, say=say))
    for sentence in refused:
        err.print(f"{sentence} The one before it was used.", style="yellow", soft_wrap=True)
    plan = subject.plan
    sizes = {"params": plan.params, "flops": plan.flops}
    facts = {"space": subject.space, "arch": subject.arch, **sizes, "weights": subject.about_weights}
    lines = [
        f"params   {millions(plan.params)}",
        f"flops    {millions(plan.flops)} multiply-accumulates",
        f"weights  {subject.about_weights}",
    ]
    show_product(made, facts, [subject.arch], lines, folder, json=json)
