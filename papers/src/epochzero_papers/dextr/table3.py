"""Dextr, Table 3: vision transformers found in the AutoFormer spaces under 6 M and 24 M parameters.

Search within the limit in the framework of TF-TAS and AZ-NAS, then training on ImageNet. Here AZ-NAS' evolution on pink
noise searches for networks, which are counted and not trained. The paper does not say how many networks its search
evaluates.

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

TINY, SMALL = 6e6, 24e6


@experiment
class DextrTable3(NetworkSearches):
    """Two spaces."""

    name = "dextr-table3"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 3"
    full = SearchSettings(batch_size=1)
    quick = SearchSettings(batch_size=1, evaluations=2)
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "tiny, Dextr": NetworkSearch("autoformer_tiny", "dextr", "evolution_az", max_params=TINY),
        "small, Dextr": NetworkSearch("autoformer_small", "dextr", "evolution_az", max_params=SMALL),
        "small, TF-TAS": NetworkSearch("autoformer_small", "tf_tas", "evolution_az", max_params=SMALL),
    }
    paper = grid(
        ("top-1 error %", "params M", "FLOPs G", "GPU days"),
        {
            "tiny, Dextr": (23.7, 5.8, 1.36, 0.03),
            "tiny, AZ-NAS": (23.9, 5.9, 1.38, 0.03),
            "tiny, AutoFormer": (25.3, 5.7, 1.30, 24),
            "small, Dextr": (18.0, 23.0, 4.93, 0.07),
            "small, AZ-NAS": (17.8, 23.8, 5.13, 0.07),
            "small, TF-TAS": (18.1, 23.9, 5.16, 0.5),
            "small, AutoFormer": (18.3, 22.9, 5.10, 24),
        },
    )
    columns = ("params M", "FLOPs G")
    on_images = False
    unmeasured = IMAGENET
