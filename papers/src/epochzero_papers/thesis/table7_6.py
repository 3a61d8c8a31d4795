"""Thesis, Table 7.6: metrics evaluated on other datasets than the accuracies, on NAS-Bench-201.

Spearman's correlation of the realizable and of the tuned non-realizable bound, as in Table 7.1. The paper's standard
deviations over the datasets are .01 to .03.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Figures
from epochzero_papers.harness.transfer import TARGETS, thrice
from epochzero_papers.thesis.guarantees import Guarantees, by_metric, realizable, tuned_ones


@experiment
class ThesisTable76(Guarantees):
    """Four metrics, three datasets by three."""

    name = "thesis-table7.6"
    source = "Shu, thesis, Table 7.6"
    targets = TARGETS
    spearman: ClassVar[Figures] = {
        **by_metric(realizable, thrice([(0.64, 0.64, 0.58, 0.55), (0.64, 0.64, 0.58, 0.54), (0.57, 0.57, 0.52, 0.47)])),
        **tuned_ones(thrice([(0.75, 0.75, 0.69, 0.69), (0.74, 0.74, 0.69, 0.69), (0.69, 0.69, 0.63, 0.65)])),
    }
