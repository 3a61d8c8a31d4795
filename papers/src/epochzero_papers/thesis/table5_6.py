"""Thesis, Table 5.6: estimated against true performance of networks and of ensembles.

Errors by the weights of the supernet, on held-out images, against those of members that are trained, on test images:
over the networks of a pool (n = 1) and all ensembles of n of them, at most 500. Agreement-30%: of the best 30 % by the
estimate, how many are among the best 30 %. The thesis has ten networks of the DARTS space, here they are of
NAS-Bench-201 (`ensembles.py` gives the scale).

Shu. Understanding and improving neural architecture search (thesis, section 5.5.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.thesis.ensembles import Columns, Ensembles, Sizes

CASE = "error, "
"""the key of the chain's file before the size of an ensemble"""
STATISTICS = {"spearman": "spearman", "pearson": "pearson", "agreement-30%": "agreement"}


@experiment
class ThesisTable56(Ensembles):
    """Three statistics by size."""

    name = "thesis-table5.6"
    source = "Shu, thesis, Table 5.6"
    statistic = "of errors"
    full = replace(Sizes(), data=("C10",))
    paper = grid(
        ("n = 1", "n = 3", "n = 5", "n = 7"),
        {
            "spearman": (0.65, 0.33, 0.40, -0.12),
            "pearson": (0.82, 0.45, 0.45, -0.16),
            "agreement-30%": (0.33, 0.20, 0.31, 0.25),
        },
    )

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        cases = stages["trained"]["correlations"].items()
        return {
            case.removeprefix(CASE): {title: found[name] for title, name in STATISTICS.items()}
            for case, found in cases
            if case.startswith(CASE)
        }
