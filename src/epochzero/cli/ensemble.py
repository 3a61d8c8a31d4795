"""`epochzero ensemble`: several networks that predict together, chosen, trained, measured and saved as one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

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
from epochzero.cli.options import AsJson, Classes, Device, Plugins, Seed, SpaceName
from epochzero.cli.plugin import load_plugins
from epochzero.engine.device import usable
from epochzero.engine.proxy import split_list
from epochzero.ensemble.attacks import NAMES, Robustness
from epochzero.ensemble.build import build_ensemble
from epochzero.ensemble.selection import METHODS, Job, Settings
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.train.image_data import SIDE
from epochzero.train.recipes import recipe_of


def ensemble(
    data: Annotated[
        Path, typer.Option("--data", help="An .npz file, a CIFAR archive or folder, or a folder of images by class.")
    ],
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for the ensemble. The same command goes on from what is there.")
    ],
    space: SpaceName = "nb201",
    method: Annotated[
        str, typer.Option("--method", help=f"How members are chosen: {', '.join(METHODS)}.")
    ] = "nesbs-svgd",
    arch: Annotated[
        list[str] | None,
        typer.Option("--arch", help="A member, instead of a method. May be repeated; one alone: a deep ensemble."),
    ] = None,
    size: Annotated[int, typer.Option("--size", min=1, max=100, help="Members.")] = 3,
    pool: Annotated[
        int, typer.Option("--pool", min=1, max=10**6, help="Networks nes-rs and proxies choose from.")
    ] = 20,
    proxy: Annotated[str, typer.Option("--proxy", help="What `--method proxies` goes by: dextr, rank(dextr,zico).")] = (
        "dextr"
    ),
    supernet_epochs: Annotated[
        int, typer.Option("--supernet-epochs", min=1, max=10**6, help="Training of the network that NESBS shares.")
    ] = 50,
    posterior_epochs: Annotated[
        int, typer.Option("--posterior-epochs", min=1, max=10**6, help="Fitting of NESBS' posterior.")
    ] = 20,
    likelihood: Annotated[
        Literal["sum", "mean"],
        typer.Option("--likelihood", help="Over held-out images, for the posterior; mean keeps it near uniform."),
    ] = "sum",
    delta: Annotated[
        str, typer.Option("--delta", help="How far nesbs-svgd pushes members apart: -2 to 1, grid or bayes.")
    ] = "grid",
    candidates: Annotated[
        int,
        typer.Option(
            "--candidates", min=1, max=10**6, help="Ensembles NESBS takes the best of, for each delta that it tries."
        ),
    ] = 5,
    recipe: RecipeName = "default",
    epochs: Epochs = None,
    batch_size: OwnBatchSize = None,
    option: RecipeChanges = None,
    attack: Annotated[
        str | None, typer.Option("--attack", help=f"Attacks to withstand, separated by commas: {', '.join(NAMES)}.")
    ] = None,
    attack_images: Annotated[
        int, typer.Option("--attack-images", min=1, max=10**7, help="Test images that are attacked.")
    ] = 1000,
    picture: Annotated[
        bool, typer.Option("--picture", help="Draw how differently the members predict (t-SNE): predictions.png.")
    ] = False,
    image_size: ImageSize = SIDE,
    unreadable: Unreadable = "stop",
    classes: Classes = None,
    seed: Seed = 0,
    device: Device = "cpu",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Choose several networks, train them, and let them predict together.

    epochzero ensemble --data cifar10.npz --method nesbs-svgd --size 3 --attack fgsm,pgd --out run

    epochzero ensemble --data cifar10.npz --arch '|nor_conv_3x3~0|+...' --size 3 --out run

    The second is a deep ensemble: one architecture, trained from several seeds. Supernet, choice and members are kept
    in the folder: stopped at any moment, the same command goes on. `epochzero report` shows its ensemble.db.
    """
    start = time.perf_counter()
    load_plugins(plugin)
    chosen_space, how = space_of_plans(space), recipe_of(recipe, changes(epochs, batch_size, option))
    settings = Settings(
        method=method,
        size=size,
        pool=pool,
        proxy=proxy,
        supernet_epochs=supernet_epochs,
        posterior_epochs=posterior_epochs,
        likelihood=likelihood,
        candidates=candidates,
        delta=_delta(delta),
        seed=seed,
    )
    named = [chosen_space.parse(text) for text in arch or ()]
    usable(device)
    images = images_from(data, classes, seed, image_size, unreadable)
    with progress_bar("ensemble") as bar:
        job = Job(chosen_space, images, how, settings, device, made_folder(out_dir), bar)
        built = build_ensemble(
            job, named, attacks=split_list(attack or ""), attack_images=attack_images, picture=picture
        )
    report = built.report | {"recipe": recipe, "seconds": time.perf_counter() - start}
    report |= {"saved": str(built.manifest), "store": str(built.store)}
    if json:
        print_json(report)
        return
    _show(report, built.robustness)
    err.print(f"\nensemble  {built.manifest}\nreport    epochzero report {built.store}", soft_wrap=True)


def _delta(text: str) -> float | Literal["grid", "bayes"]:
    if text == "grid":
        return "grid"
    if text == "bayes":
        return "bayes"
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--delta takes a number, grid or bayes, not {text!r}.") from None


def _show(report: dict[str, Any], withstood: list[Robustness]) -> None:
    for member in report["members"]:
        out.print(f"{100 * member['test_error']:6.2f} % error  {member['arch']}")
    measures = report["ensemble"]
    out.print(f"\nparams         {millions(report['params'])} in {report['size']} members")
    out.print(
        f"test error     {100 * measures['error']:.2f} %, of the members {100 * measures['ate']:.2f} % on average"
    )
    out.print(f"disagreement   {100 * measures['ppd']:.2f} % of the images, of two members on average")
    out.print(f"calibration    ECE {measures['ece']:.4f}  NLL {measures['nll']:.4f}")
    if withstood:
        table = Table("attack", "one member", "all together", "images", box=None, pad_edge=False, header_style="dim")
        for one in (w.as_json() for w in withstood):
            shown = (
                f"{100 * one[f'{side}_accuracy']:.2f} ± {100 * one[f'{side}_std']:.2f} %"
                for side in ("attack", "defence")
            )
            table.add_row(one["attack"], *shown, str(one["images"]))
        out.print()
        out.print(table)
