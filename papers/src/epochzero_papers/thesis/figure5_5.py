"""Thesis, Figure 5.5: is a posterior's most probable network the best one?.

Test error, by inherited weights, of the most probable network, the lowest among those that were evaluated, and the gap
between the two, for the posterior that is learnt after the supernet and for the one that is learnt during its training,
in the DARTS space (`ensembles.py` gives the scale). The thesis shows bars and prints no figures.

Shu. Understanding and improving neural architecture search (thesis, section 5.5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epochzero_papers.harness.base import experiment
from epochzero_papers.thesis.ensembles import SMALL, Columns, Ensembles, Sizes

ROWS = {"most probable": "most_probable", "best seen": "best", "gap": "gap"}


@experiment
class ThesisFigure55(Ensembles):
    """Two posteriors."""

    name = "thesis-figure5.5"
    source = "Shu, thesis, Figure 5.5"
    space = "darts"
    full = replace(Sizes(), data=("C10",), inherited=True)
    quick = replace(SMALL, cells=3, svgd_steps=10, inherited=True)

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {
            which: {row: 100 * stages[f"discrepancy, {which}"][name] for row, name in ROWS.items()}
            for which in ("post-training", "best-response")
        }
