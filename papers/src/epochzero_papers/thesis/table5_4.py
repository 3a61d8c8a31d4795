"""Thesis, Table 5.4: ensembles of three networks under white-box attacks.

Each member in turn is attacked with its own gradients: accuracies of that member (attack) and of the whole ensemble
(defence) on the same images. FGSM and PGD-40 within .01; Carlini-Wagner and AutoAttack as `ensemble/attacks_art.py` has
them. Networks of the DARTS space (`ensembles.py` gives the scale). The thesis' deep ensembles are of known cells, ours
is of the single best network that the search evaluated.

Shu. Understanding and improving neural architecture search (thesis, sections 5.3.6 and 5.4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from epochzero_papers.harness.base import Work, experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import SMALL, WAYS, Columns, Ensembles, Sizes
from epochzero_papers.thesis.nesbs_attacks import STAGE, attacked

ATTACKS = {"fgsm": "FGSM", "pgd": "PGD-40", "cw": "CW", "autoattack": "AutoAttack"}
SIDES = ("attack", "defence")


@dataclass(frozen=True)
class Attacked(Sizes):
    """The attacks, and the number of test images."""

    attacks: tuple[str, ...] = ("fgsm", "pgd")
    attacked_images: int = 256


def column(label: str, attack: str, side: str) -> str:
    return f"{label} {ATTACKS[attack]} {side}"


def _printed(label: str, rows: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, float]]:
    heads = [column(label, attack, side) for attack in ATTACKS for side in SIDES]
    return {row: dict(columns) for row, columns in grid(heads, rows).items()}


C10 = _printed(
    "C10",
    {
        "DeepEns (RobNet-free)": (66.62, 85.25, 41.81, 77.48, 5.74, 86.53, 21.35, 45.51),
        "DeepEns (ENAS)": (77.85, 87.94, 59.51, 86.57, 31.36, 85.20, 31.71, 50.96),
        "DeepEns (DARTS)": (76.79, 88.21, 57.71, 82.02, 26.90, 82.46, 29.97, 49.67),
        "NES-RS": (79.19, 89.32, 65.59, 85.22, 37.20, 86.75, 35.00, 53.80),
        "NESBS, MC sampling": (78.75, 89.15, 63.60, 85.35, 37.71, 86.86, 36.02, 56.90),
        "NESBS, SVGD-RD": (79.12, 89.86, 65.53, 85.37, 38.27, 86.00, 37.55, 57.15),
    },
)
C100 = _printed(
    "C100",
    {
        "DeepEns (RobNet-free)": (36.47, 61.39, 18.18, 52.61, 2.36, 69.44, 7.31, 24.56),
        "DeepEns (ENAS)": (46.40, 64.94, 28.87, 56.79, 9.60, 69.43, 11.53, 27.01),
        "DeepEns (DARTS)": (46.98, 65.38, 28.78, 57.10, 9.73, 70.15, 11.20, 26.86),
        "NES-RS": (47.10, 65.33, 30.68, 58.80, 9.96, 70.24, 12.01, 27.49),
        "NESBS, MC sampling": (50.69, 67.63, 33.37, 60.36, 15.64, 71.25, 13.11, 29.87),
        "NESBS, SVGD-RD": (51.47, 66.66, 35.02, 59.96, 16.72, 69.88, 14.62, 31.07),
    },
)


@experiment
class ThesisTable54(Ensembles):
    """Accuracies under attack."""

    name = "thesis-table5.4"
    source = "Shu, thesis, Table 5.4"
    full: Attacked = Attacked()
    quick: Attacked = replace(Attacked(**asdict(SMALL), attacks=("fgsm",), attacked_images=16), cells=3, svgd_steps=10)
    space = "darts"
    statistic = "test accuracy %"
    paper = {row: C10[row] | C100[row] for row in C10}  # noqa: RUF012
    unmeasured = (
        "The cells of RobNet, ENAS and DARTS are not trained here. Carlini-Wagner and AutoAttack need the extra "
        "`attacks`: `python -m epochzero_papers nesbs-attacks --attacks cw,autoattack`.",
    )

    def more(self, work: Work, file: Path, out: Path) -> None:
        settings: Attacked = work.settings
        attacked(out, str(file), work.device, settings.attacks, settings.attacked_images)

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        done = [attack for attack in ATTACKS if f"{STAGE}{attack}" in stages]
        return {
            column(label, attack, side): {
                title: 100 * stages[f"{STAGE}{attack}"][way][f"{side}_accuracy"] for title, way in WAYS.items()
            }
            for attack in done
            for side in SIDES
        }
