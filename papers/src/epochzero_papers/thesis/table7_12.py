"""Thesis, Table 7.12: the guarantees with metrics that are not gradients of the loss, on NAS-Bench-201.

The two bounds of Table 7.6, M from KNAS, Fisher, SynFlow (its logarithm, which orders 1/M as SynFlow does
where it is positive) and NASWOT. M_KNAS is the root of `knas` (eq. D.11) and that of the loss, the thesis' that of the
labels' logits.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Figures
from epochzero_papers.harness.transfer import TARGETS, thrice
from epochzero_papers.thesis.guarantees import OTHER_METRICS, Guarantees, by_metric, realizable, tuned_ones


@experiment
class ThesisTable712(Guarantees):
    """Four metrics, three datasets by three."""

    name = "thesis-table7.12"
    source = "Shu, thesis, Table 7.12"
    targets = TARGETS
    metrics = OTHER_METRICS
    spearman: ClassVar[Figures] = {
        **by_metric(
            realizable,
            thrice([(0.53, 0.39, 0.78, 0.09), (0.53, 0.39, 0.76, 0.09), (0.46, 0.32, 0.75, 0.16)]),
            OTHER_METRICS,
        ),
        **tuned_ones(
            thrice([(0.66, 0.51, 0.81, 0.05), (0.67, 0.51, 0.80, 0.05), (0.62, 0.44, 0.78, 0.05)]),
            OTHER_METRICS,
        ),
    }
    kendall: ClassVar[Figures] = {
        **by_metric(
            realizable,
            thrice([(0.39, 0.29, 0.58, 0.10), (0.38, 0.29, 0.57, 0.11), (0.33, 0.24, 0.56, 0.15)]),
            OTHER_METRICS,
        ),
        **tuned_ones(
            thrice([(0.49, 0.37, 0.61, 0.03), (0.49, 0.37, 0.60, 0.03), (0.45, 0.32, 0.59, 0.03)]),
            OTHER_METRICS,
        ),
    }
