"""`epochzero train`: an architecture, trained on images or on a table of clicks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from epochzero.cli.console import counted, err, millions, out, print_json, progress_bar
from epochzero.cli.image_training import ImageOptions, RunOptions, TrainingOptions
from epochzero.cli.options import AsJson, ClickOptions, From, Log, SpaceName, Top, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.cli.recommend.old_spelling import trained as trained_recommender
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.progress import silent
from epochzero.recommend.jobs import is_search
from epochzero.spaces.base import Space
from epochzero.study.winners import Winner, resolved, winners_of
from epochzero.train.image_data import Images
from epochzero.train.images import METRICS, plan_for, train_architecture
from epochzero.train.processes import joined
from epochzero.train.recipes import Recipe
from epochzero.train.teacher import read_teacher


@panel("Network")
class NetworkOptions:
    arch: Annotated[str | None, Option(help="Architecture, as the space writes it; default: that of the search.")] = (
        None
    )
    space: SpaceName = "nb201"
    source: From = None
    top: Top = 1
    teacher: Annotated[
        Path | None, Option(help="Learn also from this trained network: the --out of another training.")
    ] = None


@panel("Output")
class OutputOptions:
    out_dir: Annotated[
        Path, Option("--out", help="Folder for checkpoints and metrics. The same command resumes from it.")
    ]
    tensorboard: Annotated[Path | None, Option(help="The same as --log tensorboard:FOLDER.")] = None
    log: Log = None
    json: AsJson = False


@panel("Recommenders (now `epochzero recommend train`)")
class RecommenderOptions(ClickOptions):
    pass


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
    clicks: RecommenderOptions,
) -> None:
    """Train a network on images with a paper's recipe or with our own.

    epochzero train --space nb201 --arch '|nor_conv_3x3~0|+...' --data cifar10.npz --recipe nb201 --out run

    Every epoch is kept in the folder. If the training is interrupted, the same command resumes it and, on a CPU, ends
    with the same bits. `epochzero export --weights run` makes a product of it. On several GPUs:

    torchrun --nproc-per-node 4 -m epochzero train --device cuda ...

    epochzero train --from run.db --top 3 --data images --out run

    trains the best of a search, of its winner.json, or a module of yours, file.py:factory; several --from are trained
    one after the other.

    Recommenders are trained by `epochzero recommend train`.
    """
    load_plugins(running.plugin)
    if clicks.schema is not None or is_search(data):
        unused = {
            "--recipe": None if training.recipe == "default" else training.recipe,
            "--classes": reading.classes,
            "--teacher": network.teacher,
            "--tensorboard": output.tensorboard,
            "--log": output.log,
        }
        given = asdict(training) | asdict(clicks) | {"space": network.space, "arch": network.arch}
        given |= {"data": str(data), "seed": running.seed, "device": running.device}
        del given["recipe"]
        trained_recommender(unused, **given, out_dir=output.out_dir, json=output.json)
        return
    chosen, recipe = _chosen(network), training.changed
    usable(running.device)
    images, folder = reading.load(data, running.seed), made_folder(output.out_dir)
    reports = []
    for place, one in enumerate(chosen, 1):
        own = folder if len(chosen) == 1 else made_folder(folder / str(place))
        report = _trained(one, images, recipe, own, network, running, output)
        if report is None:  # another process reports
            return
        reports.append(report | {"recipe": training.recipe})
    reports.sort(key=lambda report: -float(report["test_accuracy"]))
    if output.json:
        print_json(reports[0] if len(reports) == 1 else {"networks": reports})
        return
    for report in reports:
        _show(report)


def _chosen(network: NetworkOptions) -> list[Winner]:
    """The networks to train."""
    if network.source:
        if network.arch is not None:
            raise UserError("--from names the networks: leave --arch out.")
        return winners_of(network.source, network.top)
    if network.arch is None:
        raise UserError("Say which network to train: give --arch, or --from with a store, a winner.json or a module.")
    if network.top != 1:
        raise UserError("--top is about the networks of --from: leave it out.")
    return [Winner(network.space, network.arch)]


def _trained(
    one: Winner,
    images: Images,
    recipe: Recipe,
    folder: Path,
    network: NetworkOptions,
    running: RunOptions,
    output: OutputOptions,
) -> dict[str, Any] | None:
    """Trains one network and returns the report; None in processes that do not report."""
    space, arch = resolved(one)
    plan = plan_for(space, arch, images, recipe) if isinstance(space, Space) else None
    with ExitStack() as stack:
        progress, processes = stack.enter_context(progress_bar("train")), stack.enter_context(joined(running.device))
        first = processes.first
        board = () if output.tensorboard is None else (f"tensorboard:{output.tensorboard}",)
        trained = train_architecture(
            space,
            arch,
            images,
            recipe,
            folder,
            (*board, *(output.log or ())) if first else (),
            seed=running.seed,
            teacher=None if network.teacher is None else read_teacher(network.teacher),
            processes=processes,
            progress=progress if first else silent,
        )
    if not first:
        return None
    for sentence in trained.refused:
        err.print(f"{sentence} The one before it was used.", style="yellow", soft_wrap=True)
    last = trained.history[-1]
    return {
        "space": space.name,
        "arch": space.text(arch),
        "params": sum(p.numel() for p in trained.module.parameters()) if plan is None else plan.trunk.params,
        "flops": None if plan is None else plan.flops,
        "epochs": recipe.epochs,
        "resumed": trained.resumed,
        "test_accuracy": last["test_accuracy"],
        "test_loss": last["test_loss"],
        "seconds": sum(record["seconds"] for record in trained.history),
        "history": trained.history,
        "data": images.facts,
        "folder": str(folder),
    }


def _show(report: dict[str, Any]) -> None:
    data, last = report["data"], report["history"][-1]
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}")
    out.print(f"data           {data['train']:,} images; tested on {data['test']:,}")
    out.print(f"test accuracy  {100 * last['test_accuracy']:.2f} %")
    out.print(f"test loss      {last['test_loss']:.4f}")
    speed = f"{last['images_per_second']:.0f} images per second"
    err.print(f"\n{counted(report['epochs'], 'epoch')} in {report['seconds']:.1f} s; {speed}")
    err.print(f"training  {report['folder']}/{METRICS} and checkpoints", soft_wrap=True)
