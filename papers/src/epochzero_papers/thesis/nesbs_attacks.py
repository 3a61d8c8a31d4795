r"""The accuracy under attack of the ensembles of finished chains of NESBS: Table 5.4 of the thesis, at their scale.

    python -m epochzero_papers nesbs-attacks nb201-0.json --data cifar10.npz --device cuda --images 256

Each member in turn is attacked with its own gradients alone; the table has the member's own accuracy on these images
(attack) and that of the averaged prediction of all members (defence), see `ensemble/attacks.py`. The result is one more
stage of the run's file, and `nesbs-report` prints it with the rest. FGSM and PGD need torch and numpy alone;
Carlini-Wagner (cw) and AutoAttack (autoattack) need the extra `attacks`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from epochzero.ensemble.attacks import robustness
from epochzero.ensemble.model import Ensemble, Pixels
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.train.image_data import Images
from epochzero_papers.harness.member_training import (
    Member,
    Setting,
    exit_when_out_of_time,
    network_of,
    stopping,
    weights_file,
)
from epochzero_papers.harness.options import option
from epochzero_papers.thesis.nesbs_chain import Stages, setting_of

STAGE = "attack "
"""the stage of a run's file is named by this and the attack"""
ENSEMBLES = (
    "NESBS, mc", "NESBS, svgd", "best-response, mc", "best-response, svgd", "deep ensemble of the single best",
    "without training", "URS", "NES-RS", "single best",
)  # fmt: skip


def attacked(
    file: Path, data: str, device: str, attacks: Sequence[str], images: int, until: float = float("inf")
) -> None:
    """Add the accuracies under attack of the ensembles of a run to its file, on its first test images."""
    run = json.loads(file.read_text(encoding="utf-8"))
    if "trained" not in run["stages"]:
        raise UserError(f"The members of '{file}' are not all trained: give the chain's command again first.")
    stages = Stages(file, run["settings"])
    setting = setting_of(run["settings"], data, device, file)
    shown = setting.images()
    if Path(data).name != run["settings"]["data"] or shown.facts["scale"] != 255:
        raise UserError(f"The run '{file}' is of {run['settings']['data']}, as bytes: give that file with --data.")
    pixels = shown.test_x[:images].float() / 255  # [n, C, H, W]
    named = {way: run["stages"]["trained"]["ensembles"][way]["members"] for way in ENSEMBLES}
    members = {way: [Member(**one) for one in kept] for way, kept in named.items()}
    ensembles = {way: _ensemble(own, setting, shown) for way, own in members.items()}

    def all_of(attack: str) -> dict[str, Any]:
        accuracies = {}
        for way, ensemble in ensembles.items():
            check = stopping(until)
            one = robustness(ensemble, pixels, shown.test_y[:images], attack, size=images, progress=check)
            accuracies[way] = one.as_json()
        return accuracies

    for attack in attacks:
        stages.stage(f"{STAGE}{attack}", partial(all_of, attack))


def _ensemble(members: Sequence[Member], setting: Setting, images: Images) -> Ensemble:
    missing = [str(file) for file in (weights_file(member, setting) for member in members) if not file.exists()]
    if missing:
        raise UserError(f"The weights '{missing[0]}' are not there: bring the run's folder with its file.")
    space = spaces[setting.space]
    archs, modules = [space.parse(one.arch) for one in members], [network_of(one, setting) for one in members]
    return Ensemble(space, archs, modules, Pixels.of(images)).to(setting.device).eval()


@dataclass(frozen=True)
class Asked:
    """The runs to attack, and the attacks."""

    files: tuple[Path, ...] = option(about="the files of finished runs", positional=True)
    data: str = option(about="the .npz file of images that the runs are of")
    device: str = option("cpu")
    attacks: str = option("fgsm,pgd", "separated by commas: fgsm, pgd, cw, autoattack")
    images: int = option(256, "test images that are attacked")
    seconds: float = option(math.inf, "after which it stops; default: never")


def run(asked: Asked) -> None:
    """Attack the ensembles of each run."""
    until = time.time() + asked.seconds
    if asked.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    with exit_when_out_of_time():
        for file in asked.files:
            attacked(file, asked.data, asked.device, asked.attacks.split(","), asked.images, until)
