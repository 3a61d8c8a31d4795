"""Thesis, Table 5.5: accuracy and disagreement of the members of an ensemble.

Average test error (ATE) of the members and pairwise predictive disagreement (PPD) of the ensembles of Table 5.2, here
of NAS-Bench-201 (`ensembles.py` gives the scale). DeepEns and MC DropPath are of the cell of DARTS in the thesis, here
of the single best network that the search evaluated.

Shu. Understanding and improving neural architecture search (thesis, section 5.4.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import OTHERS, WAYS, Columns, Ensembles, percent

SEVERAL = {title: way for title, way in (WAYS | OTHERS).items() if way != "single best"}


@experiment
class ThesisTable55(Ensembles):
    """Two measures on two data sets."""

    name = "thesis-table5.5"
    source = "Shu, thesis, Table 5.5"
    statistic = "%"
    paper = grid(
        ("C10 ATE", "C10 PPD", "C100 ATE", "C100 PPD"),
        {
            "MC DropPath": (2.71, 0.39, 16.68, 2.63),
            "DeepEns": (2.69, 2.08, 16.18, 12.45),
            "NES-RS": (2.87, 2.29, 17.20, 14.14),
            "NESBS, MC sampling": (2.80, 2.57, 16.70, 13.84),
            "NESBS, SVGD-RD": (2.78, 2.27, 16.50, 13.16),
        },
    )

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {f"{label} {name}": percent(stages, name.lower(), SEVERAL) for name in ("ATE", "PPD")}
