"""Dextr, Table 8: a network found in the MobileNet-v2 space under 450 M FLOPs.

Evolution with a population of 1,024 and 1e5 iterations as in AZ-NAS, then training on ImageNet. Here networks are
searched for on pink noise and counted; they are not trained. The paper's own has 457 M, a little more than its limit.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.network_searches import NetworkSearch, NetworkSearches, SearchSettings
from epochzero_papers.harness.planned import IMAGENET

LIMIT = 450e6


@experiment
class DextrTable8(NetworkSearches):
    """Two objectives."""

    name = "dextr-table8"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 8"
    full = SearchSettings(batch_size=64, evaluations=100_000)
    quick = SearchSettings(batch_size=1, evaluations=6)
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "Dextr": NetworkSearch("mobilenet", "dextr", "evolution_az", max_flops=LIMIT),
    }
    paper = grid(("FLOPs M", "top-1 accuracy %", "GPU days"), {"Dextr": (457, 78.8, 0.6), "AZ-NAS": (462, 78.6, 0.4)})
    columns = ("FLOPs M",)
    on_images = False
    unmeasured = IMAGENET
