"""Thesis, Table 5.2: ensembles of three networks of the DARTS space on CIFAR.

As Table 5.1, in the DARTS space (`ensembles.py` gives the scale). The thesis' deep ensembles and MC DropPath are of
known cells, ours are of the single best network that the search evaluated.

Shu. Understanding and improving neural architecture search (thesis, section 5.4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import SMALL, Columns, Ensembles, percent


@experiment
class ThesisTable52(Ensembles):
    """Errors on two data sets."""

    name = "thesis-table5.2"
    source = "Shu, thesis, Table 5.2"
    space = "darts"
    quick = replace(SMALL, cells=3, svgd_steps=10)
    paper = grid(
        ("C10", "C100"),
        {
            "MC DropPath (ENAS)": (2.88, 16.83),
            "DeepEns (DARTS)": (2.42, 14.56),
            "DeepEns (ENAS)": (2.49, 15.04),
            "NES-RS": (2.50, 15.24),
            "NESBS, MC sampling": (2.41, 14.70),
            "NESBS, SVGD-RD": (2.36, 14.55),
        },
    )
    unmeasured = ("The cells of DARTS and ENAS are not trained here.",)

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {label: percent(stages, "error")}
