"""`epochzero export`: a network as a product."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.console import err, millions
from epochzero.cli.export_ensemble import export_members
from epochzero.cli.options import AsJson, Init, Plugins, Seed
from epochzero.cli.plugin import load_plugins
from epochzero.cli.product import made_with, tell
from epochzero.cli.real_inputs import real_inputs
from epochzero.cli.recommend.old_spelling import exported as export_clicks
from epochzero.errors import StoreError, UserError
from epochzero.export import Subject
from epochzero.export import export as export_
from epochzero.export.ensemble import holds_ensemble
from epochzero.export.subject import best_of
from epochzero.export.weights import read_weights
from epochzero.files import made_folder
from epochzero.quantities import shape
from epochzero.recommend.recommender import holds_recommender
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.types import Origin


def export(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for model.py, weights, ONNX and model card.")],
    space: Annotated[
        str | None, typer.Option("--space", help="Search space; default: what weights or store say, or nb201.")
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="Architecture; default: that of weights or store.")] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", help="Export the winner of its last finished search, and take the card's scores there."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", help="Folder of `epochzero train` or `ensemble`, a checkpoint, a state_dict or .safetensors."
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option("--classes", "--num-classes", min=1, max=10**6, help="Default: those of weights, data or space."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option("--input-shape", help="3,224,224; default: that of weights, data or space.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Real inputs for the check: an .npz file, a CIFAR archive or folder, a folder of images by class, or "
            "a table of clicks.",
        ),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx/--no-onnx", help="Write and check model.onnx.")] = True,
    seed: Seed = 0,
    init: Init = "default",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Write a network as a product: code that needs torch alone, weights, checked ONNX, a model card.

    epochzero export --weights run --data cifar10.npz --out product

    epochzero export --weights clicks-run --data criteo.tsv --out product

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
    given = None if weights is None else read_weights(weights)
    with ExitStack() as stack:
        opened = None if store is None else stack.enter_context(_opened(store))
        known = {} if given is None else given.identity
        text = arch or known.get("arch")
        name = space or known.get("space") or "nb201"
        if text is None:
            name, text = _winner(space, store, opened)
        chosen_space = spaces[name]
        sizes = shape(input_shape) or (tuple(known["input_shape"]) if "input_shape" in known else None)
        real = None if data is None else real_inputs(data, sizes, seed)
        guessed = known.get("num_classes") or (None if real is None else real.num_classes)
        subject = Subject.of(
            chosen_space,
            chosen_space.parse(text),
            num_classes=classes or guessed,
            input_shape=sizes or (None if real is None else tuple(real.x.shape[1:])),
            weights=given,
            origin=Origin(init, seed),
            store=opened,
        )
    folder = made_folder(out_dir)
    inputs = None if real is None else real.x
    made = made_with(lambda say: export_(subject, folder, real=inputs, onnx=onnx, say=say))
    for sentence in () if given is None else given.refused:
        err.print(f"{sentence} The one before it was used.", style="yellow", soft_wrap=True)
    facts = {
        "space": subject.space,
        "arch": subject.arch,
        "params": subject.plan.params,
        "flops": subject.plan.flops,
        "weights": subject.about_weights,
    }
    lines = [
        f"params   {millions(subject.plan.params)}",
        f"flops    {millions(subject.plan.flops)} multiply-accumulates",
        f"weights  {subject.about_weights}",
    ]
    tell(made, facts, [subject.arch], lines, folder, json=json)


def _opened(path: Path) -> Store:
    if not path.is_file():
        raise StoreError(f"There is no store '{path}'.")
    return Store.open(path)


def _winner(space: str | None, path: Path | None, store: Store | None) -> tuple[str, str]:
    """Space and architecture that the store's last search found."""
    if path is None or store is None:
        raise UserError("Say what to export: give --arch, --store, or --weights of `epochzero train`.")
    searched, best = best_of(path, store)
    if space not in (None, searched):
        raise UserError(f"The store's last search was in {searched}, not in {space}: leave --space out.")
    return searched, best
