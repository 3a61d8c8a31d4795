"""Thesis, Table 5.7: ensembles from the post-training and from the best-response posterior.

A posterior that is learnt after the supernet, or during its training. Ensembles of three on CIFAR-10; the thesis trains
members for 100 epochs, in the DARTS space, here they are of NAS-Bench-201 (`ensembles.py` gives the scale).

Shu. Understanding and improving neural architecture search (thesis, section 5.5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import Columns, Ensembles, Sizes, percent

SAMPLERS = {"NESBS, MC sampling": "mc", "NESBS, SVGD-RD": "svgd"}
POSTERIORS = {"best-response": "best-response", "post-training": "NESBS"}


@experiment
class ThesisTable57(Ensembles):
    """Two posteriors and two samplers."""

    name = "thesis-table5.7"
    source = "Shu, thesis, Table 5.7"
    full = replace(Sizes(), data=("C10",))
    paper = grid(
        ("best-response", "post-training"),
        {"NESBS, MC sampling": (4.74, 4.54), "NESBS, SVGD-RD": (4.81, 4.48)},
    )

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {
            posterior: percent(stages, "error", {title: f"{which}, {way}" for title, way in SAMPLERS.items()})
            for posterior, which in POSTERIORS.items()
        }
