"""Builds an ensemble: chooses architectures, trains them as members, measures, attacks, saves and records it.

    job = Job(spaces["nb201"], load_images("cifar10.npz"), recipe_of("default"), Settings(size=3), folder=Path("run"))
    built = build_ensemble(job, attacks=["fgsm"])
    built.ensemble.of_pixels(pixels)

The folder's store `ensemble.db` holds it as a run, so that `epochzero report` shows it like any other run. Each member
is a step with its test accuracy in percent; the result holds the members and the measures of the ensemble. The same
architecture again, as in a deep ensemble, is a repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epochzero.ensemble.attacks import Robustness, attack_of, robustness
from epochzero.ensemble.members import train_members
from epochzero.ensemble.metrics import ensemble_error, measure
from epochzero.ensemble.model import Ensemble
from epochzero.ensemble.picture import check_picture, draw_predictions
from epochzero.ensemble.selection import Job, choose
from epochzero.errors import UserError
from epochzero.objectives.objective import FEEDBACK
from epochzero.store import JSON, Evaluated, Store, manifest
from epochzero.train.image_data import Images
from epochzero.types import Score, Setting

PICTURE = "predictions.png"
STORE = "ensemble.db"
ACCURACY = f"{FEEDBACK}test_accuracy"


@dataclass(frozen=True)
class BuiltEnsemble:
    """A trained ensemble and its measures."""

    ensemble: Ensemble
    report: dict[str, Any]
    """method, members, measures and attacks in plain values"""
    robustness: list[Robustness]
    manifest: Path
    """the file that lists its parts"""
    store: Path


def build_ensemble(
    job: Job,
    archs: Sequence[Any] = (),
    *,
    attacks: Sequence[str] = (),
    attack_images: int = 1000,
    picture: bool = False,
) -> BuiltEnsemble:
    """Builds the ensemble of a job in its folder; an interrupted call with the same arguments resumes.

    `archs` are members to train in place of the method's choice; a single one becomes a deep ensemble.
    """
    settings, images, folder = job.settings, job.images, job.folder
    if folder is None:
        raise UserError("An ensemble is built in a folder: give one.")
    _check(job, archs, attacks, picture)
    chosen = (list(archs) * settings.size if len(archs) == 1 else list(archs)) or choose(job)
    method = "deep ensemble" if len(archs) == 1 else "given" if archs else settings.method
    facts = {"method": method, "recipe": job.recipe.as_json(), "seed": settings.seed, "data": images.facts}
    ensemble = train_members(job, chosen, facts)
    predicted = ensemble.predict(images.standardised(images.test_x))  # [M, N, classes]
    report = _report(ensemble, images, predicted) | {"method": method, "epochs": job.recipe.epochs}
    ensemble.facts["measures"] = report["ensemble"]
    earlier = _earlier_attacks(ensemble, folder)
    _save(ensemble, earlier, folder)
    pixels, labels = images.test_x[:attack_images].float() / 255, images.test_y[:attack_images]
    withstood = [
        robustness(ensemble, pixels, labels, name, seed=settings.seed, progress=job.progress) for name in attacks
    ]
    report["attacks"] = [one.as_json() for one in withstood]
    saved = _save(ensemble, earlier | {one["attack"]: one for one in report["attacks"]}, folder)
    if picture:
        draw_predictions({method: predicted}, images.test_y.cpu(), folder / PICTURE, seed=settings.seed)
    return BuiltEnsemble(ensemble, report, withstood, saved, _record(ensemble, report, job, folder))


def _check(job: Job, archs: Sequence[Any], attacks: Sequence[str], picture: bool) -> None:
    """UserError, before anything is trained, for attacks or a picture that are not possible here."""
    for name in attacks:
        attack_of(name)
    if picture:
        check_picture(len(archs) if len(archs) > 1 else job.settings.size)
    if attacks and job.images.facts["scale"] != 255:
        raise UserError("Attacks change pixels, and these images are not bytes: give them as whole numbers 0 to 255.")


def _earlier_attacks(ensemble: Ensemble, folder: Path) -> dict[str, Any]:
    """Attacks on the same ensemble in an earlier call, by name."""
    try:
        earlier = Ensemble.load(folder, ensemble.space)
    except UserError:  # missing, or damaged and about to be replaced
        return {}
    ours, theirs = ensemble.state_dict(), earlier.state_dict()
    same = earlier.texts == ensemble.texts and all(torch.equal(ours[name].cpu(), theirs[name]) for name in ours)
    return {one["attack"]: one for one in earlier.facts.get("attacks", ())} if same else {}


def _save(ensemble: Ensemble, attacks: dict[str, Any], folder: Path) -> Path:
    ensemble.facts["attacks"] = list(attacks.values())
    return ensemble.save(folder)


def _report(ensemble: Ensemble, images: Images, predicted: Tensor) -> dict[str, Any]:
    labels = images.test_y.cpu()
    members = [
        {"arch": text, "test_error": ensemble_error(one[None], labels)}
        for text, one in zip(ensemble.texts, predicted, strict=True)
    ]
    return {
        "space": ensemble.space.name,
        "size": len(members),
        "params": ensemble.params,
        "ensemble": measure(predicted, labels).as_json(),
        "members": members,
        "data": images.facts,
    }


def _record(ensemble: Ensemble, report: dict[str, Any], job: Job, folder: Path) -> Path:
    """Writes the run that settings and members define into the folder's store, unless it is there."""
    members = list(ensemble.texts)
    settings: dict[str, JSON] = {
        "space": ensemble.space.name,
        "chosen_by": report["method"],
        "recipe": job.recipe.as_json(),
        "seed": job.settings.seed,
        "images": report["data"]["sha256"],
        "attacks": [[one["attack"], one["images"]] for one in report["attacks"]],
        "members": list(members),
    }
    figures = report["ensemble"] | {"params": report["params"]}
    for one in report["attacks"]:
        figures |= {f"{one['attack']}: {side} accuracy": one[f"{side}_accuracy"] for side in ("attack", "defence")}
    shape = "x".join(map(str, ensemble.input_shape))
    data = f"images of shape {shape}, {ensemble.num_classes} classes"
    with Store.open(folder / STORE) as store:
        run = store.begin_run("ensemble", settings, manifest(settings | {"data": data}))
        if run.state != "finished":
            for place, member in enumerate(report["members"]):
                repeat = members[:place].count(member["arch"])
                setting = Setting(ensemble.space.name, "test images", f"{run.id}-{repeat}")
                accuracy = Score(100 * (1 - member["test_error"]))
                run.record(setting, [Evaluated(place, member["arch"], {ACCURACY: (accuracy, 0.0)})])
            run.finish({"members": list(members), **figures})
    return folder / STORE
