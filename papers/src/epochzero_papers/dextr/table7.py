"""Dextr, Table 7: Dextr and its form for networks of unequal width, on NATS-Bench's size space.

`dextr_opt` takes a fixed number of random channels of each layer, eq. 22. Otherwise as Table 6.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh. Appendix A.5.1
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.dextr.table6 import TARGETS
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Correlations, Extent, Figures


@experiment
class DextrTable7(Correlations):
    """Two forms."""

    name = "dextr-table7"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 7"
    quick = Extent(networks=16, batch_size=16)
    targets = TARGETS
    spearman: ClassVar[Figures] = {"dextr": (-0.63, -0.60, -0.67), "dextr_opt": (0.56, 0.66, 0.65)}
