"""Dextr, Table 4: its two terms alone, with ZiCo, Zen and their harmonic mean, on NAS-Bench-201.

    fmi         log(1 + sum_l 1/c_l), convergence and generalisation
    curvature   log(1 + kappa), expressivity

Spearman's correlation over 1,000 random networks, mean of 3 runs, as in Table 1. The harmonic mean of Zen and ZiCo is
that of their unscaled scores.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import NB201_C10, NB201_C100, NB201_IN16, Correlations, Figures


@experiment
class DextrTable4(Correlations):
    """Terms and combinations."""

    name = "dextr-table4"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 4"
    targets = (NB201_C10, NB201_C100, NB201_IN16)
    spearman: ClassVar[Figures] = {
        "fmi": (0.88, 0.89, 0.85),
        "zico": (0.76, 0.79, 0.77),
        "curvature": (0.51, 0.49, 0.51),
        "zen": (0.33, 0.34, 0.38),
        "harmonic(zen,zico)": (0.44, 0.44, 0.47),
        "dextr": (0.90, 0.91, 0.87),
    }
