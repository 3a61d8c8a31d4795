"""Dextr, Figure 1: feature map independence against validation accuracy on NAS-Bench-201.

The left panel of (a): one point for each network, `fmi` and its validation accuracy on CIFAR-10. No figure is printed.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from epochzero.experiments.correlations import NB201_C10, Correlations, Extent, Figures
from epochzero.registry import experiments


class DextrFigure1(Correlations):
    """The first term of Dextr."""

    name = "dextr-figure1"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Figure 1"
    full = Extent(networks=1000)
    targets = (replace(NB201_C10, label="NB201-C10 validation", column="cifar10_val"),)
    spearman: ClassVar[Figures] = {"fmi": (None,)}
    later = (
        "The loss curves of panel (a) come with step 8, which trains networks; the curves of outputs of panel (b) are "
        "drawn by `epochzero analyze curve`.",
    )


experiments.register(DextrFigure1.name, DextrFigure1(), origin=__name__)
