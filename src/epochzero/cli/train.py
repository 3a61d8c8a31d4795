"""`epochzero train`: an architecture, trained on images or on a table of clicks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from epochzero.cli.console import err, millions, out, print_json, progress_bar
from epochzero.cli.image_training import ImageOptions, RunOptions, TrainingOptions
from epochzero.cli.options import AsJson, BadLines, SpaceName, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.old_spelling import trained as trained_recommender
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.next_steps import space_of_plans
from epochzero.progress import silent
from epochzero.recommend.jobs import is_search
from epochzero.registry import spaces
from epochzero.train.images import METRICS, plan_for, train_architecture
from epochzero.train.processes import joined
from epochzero.train.teacher import read_teacher
from epochzero.train.tensorboard import logged


@panel("Network")
class NetworkOptions:
    arch: Annotated[str | None, Option(help="Architecture, as the space writes it; default: that of the search.")] = (
        None
    )
    space: SpaceName = "nb201"
    teacher: Annotated[
        Path | None, Option(help="Learn also from this trained network: the --out of another training.")
    ] = None


@panel("Output")
class OutputOptions:
    out_dir: Annotated[
        Path, Option("--out", help="Folder for checkpoints and metrics. The same command resumes from it.")
    ]
    tensorboard: Annotated[Path | None, Option(help="Also log loss and accuracy for TensorBoard in this folder.")] = (
        None
    )
    json: AsJson = False


@panel("Recommenders (now `epochzero recommend train`)")
class ClickOptions:
    schema: Annotated[str | None, Option(help="--data is a table of clicks (criteo, avazu, a .json file).")] = None
    bad_lines: BadLines = "strict"


@spread
def train(
    data: Annotated[
        Path,
        Option(
            help="An .npz file, a CIFAR archive or folder, a folder of images by class; a table of clicks with "
            "--schema, or the folder of a search on one."
        ),
    ],
    network: NetworkOptions,
    training: TrainingOptions,
    reading: ImageOptions,
    running: RunOptions,
    output: OutputOptions,
    clicks: ClickOptions,
) -> None:
    """Train a network on images with a paper's recipe or with our own.

    epochzero train --space nb201 --arch '|nor_conv_3x3~0|+...' --data cifar10.npz --recipe nb201 --out run

    Every epoch is kept in the folder. If the training is interrupted, the same command resumes it and, on a CPU, ends
    with the same bits. `epochzero export --weights run` makes a product of it. On several GPUs:

    torchrun --nproc-per-node 4 -m epochzero train --device cuda ...

    Recommenders are trained by `epochzero recommend train`.
    """
    load_plugins(running.plugin)
    if clicks.schema is not None or is_search(data):
        unused = {
            "--recipe": None if training.recipe == "default" else training.recipe,
            "--classes": reading.classes,
            "--teacher": network.teacher,
            "--tensorboard": output.tensorboard,
        }
        given = asdict(training) | asdict(clicks) | {"space": network.space, "arch": network.arch}
        given |= {"data": str(data), "seed": running.seed, "device": running.device}
        del given["recipe"]
        trained_recommender(unused, **given, out_dir=output.out_dir, json=output.json)
        return
    if network.arch is None:
        raise UserError("Say which network to train: give --arch.")
    recipe, space = training.changed, space_of_plans(spaces[network.space])
    arch = space.parse(network.arch)
    usable(running.device)
    images = reading.load(data, running.seed)
    plan, folder = plan_for(space, arch, images, recipe), made_folder(output.out_dir)
    with ExitStack() as stack:
        progress, processes = stack.enter_context(progress_bar("train")), stack.enter_context(joined(running.device))
        first, board = processes.first, output.tensorboard
        trained = train_architecture(
            space,
            arch,
            images,
            recipe,
            folder,
            seed=running.seed,
            teacher=None if network.teacher is None else read_teacher(network.teacher),
            processes=processes,
            progress=progress if first else silent,
            watch=stack.enter_context(logged(board)) if board is not None and first else None,
        )
    if not first:
        return
    last = trained.history[-1]
    report: dict[str, Any] = {
        "space": network.space,
        "arch": space.text(arch),
        "params": plan.trunk.params,
        "flops": plan.flops,
        "recipe": training.recipe,
        "epochs": recipe.epochs,
        "resumed": trained.resumed,
        "test_accuracy": last["test_accuracy"],
        "test_loss": last["test_loss"],
        "seconds": sum(record["seconds"] for record in trained.history),
        "history": trained.history,
        "data": images.facts,
    }
    for sentence in trained.refused:
        err.print(f"{sentence} The one before it was used.", style="yellow", soft_wrap=True)
    if output.json:
        print_json(report)
        return
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}")
    out.print(f"data           {images.facts['train']:,} images; tested on {images.facts['test']:,}")
    out.print(f"test accuracy  {100 * last['test_accuracy']:.2f} %")
    out.print(f"test loss      {last['test_loss']:.4f}")
    err.print(
        f"\n{recipe.epochs} epochs in {report['seconds']:.1f} s; {last['images_per_second']:.0f} images per second"
    )
    err.print(f"training  {output.out_dir}/{METRICS} and checkpoints", soft_wrap=True)
