"""Thesis, Figure 5.7: how strongly SVGD-RD should separate members.

Test error of ensembles of five, by inherited weights, for each delta and temperature of the posterior, in the DARTS
space (`nesbs_curves.py`; `ensembles.py` gives the scale). The thesis shows curves and prints no figures.

Shu. Understanding and improving neural architecture search (thesis, section 5.5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from epochzero_papers.harness.base import experiment
from epochzero_papers.thesis.ensembles import SMALL, Columns, Ensembles, Sizes


@experiment
class ThesisFigure57(Ensembles):
    """Errors by delta."""

    name = "thesis-figure5.7"
    source = "Shu, thesis, Figure 5.7"
    space = "darts"
    full = replace(Sizes(), data=("C10",), trials=2, budget=6, curves=True, inherited=True)
    quick = replace(SMALL, cells=3, svgd_steps=10, budget=2, curves=True, inherited=True)

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        return {
            f"tau = {tau}": {
                f"delta {delta}": 100 * float(np.mean(errors)) for delta, errors in found["test_error"].items()
            }
            for tau, found in stages["deltas"].items()
        }
