"""Thesis, Figures 5.3 and 5.6: ensembles by inherited weights alone, by the number of evaluations.

Test error of the first ensemble, and of the best of all by held-out loss, for ensembles of three, five and seven and
for temperatures of the posterior, in the DARTS space (`nesbs_curves.py`; `ensembles.py` gives the scale). NES-RS has a
pool of as many networks as the others evaluate. The thesis shows curves and prints no figures.

Shu. Understanding and improving neural architecture search (thesis, sections 5.4.1 and 5.5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from epochzero_papers.harness.base import experiment
from epochzero_papers.thesis.ensembles import SMALL, Columns, Ensembles, Sizes


@experiment
class ThesisFigure53(Ensembles):
    """Errors after one evaluation and after all."""

    name = "thesis-figure5.3"
    source = "Shu, thesis, Figures 5.3 and 5.6"
    space = "darts"
    full = replace(Sizes(), data=("C10",), trials=2, budget=6, curves=True, inherited=True)
    quick = replace(SMALL, cells=3, svgd_steps=10, budget=2, curves=True, inherited=True)

    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        errors: dict[str, dict[str, float | None]] = {}
        for case, trials in stages["curves"].items():
            way, _, what = case.partition(", ")
            mean = 100 * np.mean(trials, 0)  # [budget]
            errors.setdefault(f"{what}, 1 evaluation", {})[way] = float(mean[0])
            errors.setdefault(f"{what}, best of {len(mean)}", {})[way] = float(mean[-1])
        return errors
