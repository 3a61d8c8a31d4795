"""`epochzero ensemble`: several networks that predict together."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from epochzero.cli.console import err, millions, out, plain_table, print_json, progress_bar
from epochzero.cli.image_training import ImageOptions, RunOptions, TrainingOptions
from epochzero.cli.options import AsJson, From, SpaceName, Top, panel, spread
from epochzero.cli.plugin import load_plugins
from epochzero.engine.device import usable
from epochzero.engine.proxy import split_list
from epochzero.ensemble.attacks import NAMES, Robustness
from epochzero.ensemble.build import build_ensemble
from epochzero.ensemble.selection import METHODS, Job, Settings
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.next_steps import space_of_plans
from epochzero.registry import spaces
from epochzero.study.winners import one_space, winners_of

MANY = 10**6


@panel("Members")
class MemberOptions:
    space: SpaceName = "nb201"
    arch: Annotated[
        list[str] | None, Option(help="A member, in place of a method. May be repeated; a single one: a deep ensemble.")
    ] = None
    source: From = None
    top: Top = 1


@panel("Choice of members")
class ChoiceOptions:
    method: Annotated[str, Option(help=f"Method that chooses the members: {', '.join(METHODS)}.")] = Settings.method
    size: Annotated[int, Option(min=1, max=100, help="Members.")] = Settings.size
    pool: Annotated[int, Option(min=1, max=MANY, help="Networks that nes-rs and proxies choose from.")] = Settings.pool
    proxy: Annotated[str, Option(help="Score for `--method proxies`: dextr, rank(dextr,zico).")] = Settings.proxy
    supernet_epochs: Annotated[int, Option(min=1, max=MANY, help="Training of the weights that NESBS shares.")] = (
        Settings.supernet_epochs
    )
    posterior_epochs: Annotated[int, Option(min=1, max=MANY, help="Fitting of NESBS' posterior.")] = (
        Settings.posterior_epochs
    )
    likelihood: Annotated[
        Literal["sum", "mean"], Option(help="Over held-out images, for the posterior; mean keeps it near uniform.")
    ] = Settings.likelihood
    delta: Annotated[str, Option(help="Repulsion between members for nesbs-svgd: -2 to 1, grid or bayes.")] = "grid"
    candidates: Annotated[
        int, Option(min=1, max=MANY, help="Ensembles that NESBS chooses from, for each delta tried.")
    ] = Settings.candidates


@panel("Output")
class OutputOptions:
    out_dir: Annotated[Path, Option("--out", help="Folder for the ensemble. The same command resumes from it.")]
    attack: Annotated[str | None, Option(help=f"Adversarial attacks, separated by commas: {', '.join(NAMES)}.")] = None
    attack_images: Annotated[int, Option(min=1, max=10**7, help="Test images that are attacked.")] = 1000
    picture: Annotated[
        bool, Option("--picture", help="Draw the differences between predictions (t-SNE): predictions.png.")
    ] = False
    json: AsJson = False


@spread
def ensemble(
    data: Annotated[Path, Option(help="An .npz file, a CIFAR archive or folder, or a folder of images by class.")],
    members: MemberOptions,
    choice: ChoiceOptions,
    training: TrainingOptions,
    reading: ImageOptions,
    running: RunOptions,
    output: OutputOptions,
) -> None:
    """Choose several networks, train them, and let them predict together.

    epochzero ensemble --data cifar10.npz --method nesbs-svgd --size 3 --attack fgsm,pgd --out run

    epochzero ensemble --data cifar10.npz --arch '|nor_conv_3x3~0|+...' --size 3 --out run

    The second is a deep ensemble: one architecture, trained from several seeds. Supernet, choice and members are kept
    in the folder: if it is interrupted, the same command resumes. `epochzero report` shows its ensemble.db.
    """
    start = time.perf_counter()
    load_plugins(running.plugin)
    if members.source:
        if members.arch:
            raise UserError("--from names the members: leave --arch out.")
        found = winners_of(members.source, members.top)
        if modules := [one.arch for one in found if not one.space]:
            raise UserError(f"'{modules[0]}' is a module: ensembles are made of networks of a space of plans.")
        one_space(found)
        members = replace(members, space=found[0].space, arch=[one.arch for one in found])
    space, recipe = space_of_plans(spaces[members.space]), training.changed
    settings = Settings(**asdict(choice) | {"delta": _delta(choice.delta), "seed": running.seed})
    archs = [space.parse(text) for text in members.arch or ()]
    usable(running.device)
    images = reading.load(data, running.seed)
    with progress_bar("ensemble") as bar:
        built = build_ensemble(
            Job(space, images, recipe, settings, running.device, made_folder(output.out_dir), bar),
            archs,
            attacks=split_list(output.attack or ""),
            attack_images=output.attack_images,
            picture=output.picture,
        )
    report = built.report | {"recipe": training.recipe, "seconds": time.perf_counter() - start}
    report |= {"saved": str(built.manifest), "store": str(built.store)}
    if output.json:
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
        table = plain_table("attack", "one member", "all together", "images")
        for one in (w.as_json() for w in withstood):
            shown = (
                f"{100 * one[f'{side}_accuracy']:.2f} ± {100 * one[f'{side}_std']:.2f} %"
                for side in ("attack", "defence")
            )
            table.add_row(one["attack"], *shown, str(one["images"]))
        out.print()
        out.print(table)
