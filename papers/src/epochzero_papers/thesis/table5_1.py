"""Thesis, Table 5.1: ensembles of three networks of NAS-Bench-201.

NESBS samples three networks from the posterior of a supernet; three trials (`ensembles.py` gives the scale). DeepEns is
the single best network, trained three times.

Shu. Understanding and improving neural architecture search (thesis, section 5.4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import Columns, Ensembles, Sizes, percent


@experiment
class ThesisTable51(Ensembles):
    """Errors on three data sets."""

    name = "thesis-table5.1"
    source = "Shu, thesis, Table 5.1"
    full = replace(Sizes(), data=("C10", "C100", "IN16"))
    paper = grid(
        ("C10", "C100", "IN16"),
        {
            "DeepEns": (5.75, 25.27, 54.70),
            "NES-RS": (5.83, 25.58, 54.34),
            "NESBS, MC sampling": (5.76, 25.39, 53.47),
            "NESBS, SVGD-RD": (5.92, 25.00, 52.68),
        },
    )

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {label: percent(stages, "error")}
