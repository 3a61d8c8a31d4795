"""The command `epochzero export`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.console import err, millions
from epochzero.cli.export.ensemble import export_members
from epochzero.cli.options import AsJson, From, Init, Plugins, Seed, panel, spread
from epochzero.cli.plugin import load_plugins, space_name
from epochzero.cli.product import Say, show_product, with_status
from epochzero.cli.recommend.old_spelling import exported as export_clicks
from epochzero.data import white
from epochzero.data.batch import shape_text
from epochzero.engine.space_networks import built
from epochzero.errors import UserError
from epochzero.export import export as export_
from epochzero.export.ensemble import holds_ensemble
from epochzero.export.module import export_module
from epochzero.export.product import Wanted
from epochzero.export.resolve import real_inputs, resolve, training_images
from epochzero.export.weights import read_weights
from epochzero.files import made_folder
from epochzero.quantities import shape
from epochzero.recommend.recommender import holds_recommender
from epochzero.spaces.base import GivesPlans
from epochzero.study.given import GivenNetworks
from epochzero.study.winners import Winner, only_winner, resolved
from epochzero.train.image_data import Images
from epochzero.types import Origin


@panel("Network")
class NetworkOptions:
    """The network to export."""

    space: Annotated[
        str | None,
        typer.Option("--space", callback=space_name, help="Search space; default: that of weights or store, or nb201."),
    ] = None
    arch: Annotated[str | None, typer.Option("--arch", help="Architecture; default: that of weights or store.")] = None
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Export the winner of its last finished search, with its scores on the card."),
    ] = None
    source: From = None
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", help="Folder of `epochzero train` or `ensemble`, a checkpoint, a state_dict or .safetensors."
        ),
    ] = None


@panel("Data")
class DataOptions:
    """Inputs and classes."""

    classes: Annotated[
        int | None,
        typer.Option("--classes", "--num-classes", min=1, max=10**6, help="Default: those of weights, data or space."),
    ] = None
    input_shape: Annotated[
        str | None, typer.Option("--input-shape", help="3,224,224; default: that of weights, data or space.")
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Real inputs for the check: an .npz file, a CIFAR archive or folder, or a folder of images by class.",
        ),
    ] = None


@panel("Output")
class OutputOptions:
    """The product."""

    out_dir: Annotated[Path, typer.Option("--out", help="Folder for model.py, weights, ONNX and model card.")]
    onnx: Annotated[bool, typer.Option("--onnx/--no-onnx", help="Write and check model.onnx.")] = True
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also",
            help="A further file: pixels (ONNX with the preprocessing in its graph), pt2 (torch.export), int8 (ONNX in "
            "8 bits), executorch. May be repeated.",
        ),
    ] = None

    def wanted(self, images: Images | None, say: Say) -> Wanted:
        return Wanted(self.onnx, self.also or (), images, say)


@spread
def export(
    network: NetworkOptions,
    inputs: DataOptions,
    output: OutputOptions,
    seed: Seed = 0,
    init: Init = "default",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Write a network as a product: code that needs torch alone, weights, checked ONNX, a model card.

    epochzero export --weights run --data cifar10.npz --out product

    Nothing is written unless printed code and ONNX Runtime agree with the network to 1e-4 on random and real inputs.
    With the images of the training as --data, the card has the accuracy of each file.
    """
    load_plugins(plugin)
    weights, real_data = network.weights, inputs.data
    if weights is not None and (holds_recommender(weights) or holds_ensemble(weights)):
        given = {"--space": network.space, "--arch": network.arch, "--store": network.store}
        unused = given | {"--classes": inputs.classes, "--input-shape": inputs.input_shape}
        if holds_ensemble(weights):
            export_members(weights, real_data, output, unused=unused, json=json)
        else:
            no_use: dict[str, object] = {**unused, "--also": output.also or None}
            export_clicks(weights, real_data, output.out_dir, unused=no_use, onnx=output.onnx, json=json)
        return
    if network.source:
        if network.arch is not None or network.store is not None:
            raise UserError("--from names the network: leave --arch and --store out.")
        found, (source,) = only_winner(network.source), network.source
        store = source if not source.endswith(".json") else None
        network = replace(network, arch=found.arch, space=found.space, store=None if store is None else Path(store))
    if (module := _module(network)) is not None:
        _export_module(module, weights, inputs, output, seed, json)
        return
    subject, real, refused = resolve(
        network.space,
        network.arch,
        store=network.store,
        weights=weights,
        data=real_data,
        classes=inputs.classes,
        input_shape=shape(inputs.input_shape),
        origin=Origin(init, seed),
    )
    images = training_images(real_data, (subject.training or {}).get("identity"))
    folder, kinds = made_folder(output.out_dir), output.also or ()
    made = with_status(
        lambda say: export_(subject, folder, real=real, onnx=output.onnx, also=kinds, images=images, say=say)
    )
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


def _module(network: NetworkOptions) -> Winner | None:
    """The network if it is a module: a user's own, or one of a space of modules."""
    space, arch = network.space, network.arch
    if arch is None and network.weights is not None:
        identity = read_weights(network.weights).identity
        space, arch = identity.get("space"), identity.get("arch")
    if arch is None or space is None or space == GivenNetworks.name:
        return None
    of_space = resolved(Winner(space, arch))[0]
    return None if isinstance(of_space, GivesPlans) else Winner(space, arch)


def _export_module(
    found: Winner, weights: Path | None, inputs: DataOptions, output: OutputOptions, seed: int, json: bool
) -> None:
    """Exports a module of the user, with trained weights if there are any."""
    given = None if weights is None else read_weights(weights)
    known = {} if given is None else given.identity
    sizes = shape(inputs.input_shape) or (tuple(known["input_shape"]) if known else None)
    real, classes = (None, None) if inputs.data is None else real_inputs(inputs.data, sizes, seed)
    sizes = sizes or (tuple(real.shape[1:]) if real is not None else (3, 32, 32))
    batch = white(sizes, inputs.classes or known.get("num_classes") or classes or 10, 1, 1, seed)
    module = built(*resolved(found), batch, seed)  # type: ignore[arg-type]
    images = training_images(inputs.data, known)
    folder = made_folder(output.out_dir)
    made = with_status(
        lambda say: export_module(
            module, found.arch, folder, input_shape=sizes, weights=given, real=real, wanted=output.wanted(images, say)
        )
    )
    facts = {"module": found.arch, "input_shape": list(sizes), "weights": None if given is None else given.name}
    show_product(made, facts, [found.arch], [f"input    {shape_text(sizes)}"], folder, json=json)
