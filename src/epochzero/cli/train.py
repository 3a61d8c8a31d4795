"""`epochzero train`: an architecture, trained on images or on a table of clicks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.image_training import (
    Epochs,
    ImageSize,
    OwnBatchSize,
    RecipeChanges,
    RecipeName,
    Unreadable,
    changes,
    images_from,
    space_of_plans,
)
from epochzero.cli.options import AsJson, BadLines, Classes, Device, Plugins, Seed, SpaceName
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.old_spelling import trained as trained_recommender
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.progress import silent
from epochzero.recommend.jobs import is_search
from epochzero.train.image_data import SIDE
from epochzero.train.images import METRICS, plan_for
from epochzero.train.images import train as train_
from epochzero.train.processes import joined
from epochzero.train.recipes import recipe_of
from epochzero.train.teacher import read_teacher
from epochzero.train.tensorboard import logged


def train(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="An .npz file, a CIFAR archive or folder, or a folder of images by class.",
        ),
    ],
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for checkpoints and metrics. The same command goes on from there.")
    ],
    arch: Annotated[str | None, typer.Option("--arch", help="Architecture, as the space writes it.")] = None,
    space: SpaceName = "nb201",
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="Now of `epochzero recommend train`.", hidden=True),
    ] = None,
    bad_lines: BadLines = "strict",
    recipe: RecipeName = "default",
    epochs: Epochs = None,
    batch_size: OwnBatchSize = None,
    option: RecipeChanges = None,
    image_size: ImageSize = SIDE,
    unreadable: Unreadable = "stop",
    classes: Classes = None,
    seed: Seed = 0,
    device: Device = "cpu",
    teacher: Annotated[
        Path | None,
        typer.Option("--teacher", help="Learn from this trained network too: the --out of another `epochzero train`."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", help="Also log loss and accuracy for TensorBoard in this folder.")
    ] = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Train a network on images with a paper's recipe or with our own.

    epochzero train --space nb201 --arch '|nor_conv_3x3~0|+...' --data cifar10.npz --recipe nb201 --out run

    Every epoch is kept in the folder. Stopped at any moment, the same command goes on with the next epoch and, on a
    CPU, ends with the same bits. `epochzero export --weights run` makes a product of it. On several GPUs:

    torchrun --nproc-per-node 4 -m epochzero train --device cuda ...

    Recommenders are trained by `epochzero recommend train`.
    """
    load_plugins(plugin)
    changed = changes(epochs, batch_size, option)
    if schema is not None or is_search(data):
        unused = {
            "--recipe": None if recipe == "default" else recipe,
            "--classes": classes,
            "--teacher": teacher,
            "--tensorboard": tensorboard,
        }
        table = {"data": str(data), "schema": schema, "bad_lines": bad_lines, "space": space, "arch": arch}
        given = {"epochs": epochs, "batch_size": batch_size, "option": option, "seed": seed, "device": device}
        trained_recommender(unused, **table, **given, out_dir=out_dir, json=json)
        return
    if arch is None:
        raise UserError("Say which network to train: give --arch.")
    how, chosen_space = recipe_of(recipe, changed), space_of_plans(space)
    chosen = chosen_space.parse(arch)
    usable(device)
    images = images_from(data, classes, seed, image_size, unreadable)
    plan = plan_for(chosen_space, chosen, images, how)
    folder = made_folder(out_dir)
    taught_by = None if teacher is None else read_teacher(teacher)
    with ExitStack() as stack:
        processes = stack.enter_context(joined(device))
        bar = stack.enter_context(progress_bar("train")) if processes.first else silent
        board = stack.enter_context(logged(tensorboard)) if tensorboard is not None and processes.first else None
        trained = train_(
            plan,
            images,
            how,
            seed=seed,
            folder=folder,
            facts={"space": space, "arch": chosen_space.text(chosen)},
            teacher=taught_by,
            processes=processes,
            progress=bar,
            watch=board,
        )
    if not processes.first:
        return
    last = trained.history[-1]
    report: dict[str, Any] = {
        "space": space,
        "arch": chosen_space.text(chosen),
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
