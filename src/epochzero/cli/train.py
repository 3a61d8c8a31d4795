"""`epochzero train`: an architecture, trained on images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.options import AsJson, Classes, Device, Plugins, Seed, SpaceName, made_folder, options
from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.run.task import usable
from epochzero.spaces.base import Space
from epochzero.train.image_data import SIDE, load_images
from epochzero.train.images import METRICS, plan_for
from epochzero.train.images import train as train_
from epochzero.train.recipes import RECIPES, recipe_of


def train(
    arch: Annotated[str, typer.Option("--arch", help="Architecture, as the space writes it.")],
    data: Annotated[
        Path, typer.Option("--data", help="An .npz file, a CIFAR archive or folder, or a folder of images by class.")
    ],
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for checkpoints and metrics. The same command goes on from there.")
    ],
    space: SpaceName = "nb201",
    recipe: Annotated[str, typer.Option("--recipe", help=f"How to train: {', '.join(RECIPES)}.")] = "default",
    epochs: Annotated[int | None, typer.Option("--epochs", help="Default: as many as the recipe has.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Default: that of the recipe.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="Change the recipe: learning_rate=0.05. May be repeated."),
    ] = None,
    image_size: Annotated[
        int, typer.Option("--image-size", min=8, max=2048, help="Side that image files are scaled to.")
    ] = SIDE,
    unreadable: Annotated[
        str, typer.Option("--unreadable", help="Of image files that cannot be read: stop, or skip and name them.")
    ] = "stop",
    classes: Classes = None,
    seed: Seed = 0,
    device: Device = "cpu",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Train a network on images with a paper's recipe, or with our own.

    epochzero train --space nb201 --arch '|nor_conv_3x3~0|+...' --data cifar10.npz --recipe nb201 --out run

    Every epoch is kept in the folder. Stopped at any moment, the same command goes on with the next epoch and, on a
    CPU, ends with the same bits. `epochzero export --weights run` makes a product of it.
    """
    load_plugins(plugin)
    given = {"epochs": epochs, "batch_size": batch_size}
    changes = {name: value for name, value in given.items() if value is not None} | options(option or [])
    how = recipe_of(recipe, changes)
    found = spaces[space]
    if not isinstance(found, Space):
        raise UserError(f"The space '{space}' gives modules and no plans: train them with your own loop.")
    chosen = found.parse(arch)
    usable(device)
    if unreadable not in ("stop", "skip"):
        raise UserError(f"--unreadable takes stop or skip, not {unreadable!r}.")
    images = load_images(data, num_classes=classes, seed=seed, side=image_size, skip_unreadable=unreadable == "skip")
    for name in images.facts["unreadable"]:
        err.print(f"cannot be read, left out: {name}", style="yellow", soft_wrap=True)
    plan = plan_for(found, chosen, images, how)
    folder = made_folder(out_dir)
    with progress_bar("train") as bar:
        trained = train_(
            plan,
            images,
            how,
            seed=seed,
            device=device,
            folder=folder,
            facts={"space": space, "arch": found.text(chosen)},
            progress=bar,
        )
    last = trained.history[-1]
    report: dict[str, Any] = {
        "space": space,
        "arch": found.text(chosen),
        "params": plan.trunk.params,
        "flops": plan.flops,
        "recipe": recipe,
        "epochs": how.epochs,
        "resumed": trained.resumed,
        "test_accuracy": last["test_accuracy"],
        "test_loss": last["test_loss"],
        "seconds": sum(record["seconds"] for record in trained.history),
        "history": trained.history,
        "data": images.facts,
    }
    for sentence in trained.refused:
        err.print(f"{sentence} The one before it was used.", style="yellow", soft_wrap=True)
    if json:
        print_json(report)
        return
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}")
    out.print(f"data           {images.facts['train']:,} images; tested on {images.facts['test']:,}")
    out.print(f"test accuracy  {100 * last['test_accuracy']:.2f} %")
    out.print(f"test loss      {last['test_loss']:.4f}")
    err.print(f"\n{how.epochs} epochs in {report['seconds']:.1f} s; {last['images_per_second']:.0f} images a second")
    err.print(f"training  {folder}/{METRICS} and checkpoints", soft_wrap=True)
