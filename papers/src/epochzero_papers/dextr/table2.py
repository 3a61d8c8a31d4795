"""Dextr, Table 2: networks found in the DARTS space by Zero-Cost-PT, trained on ImageNet.

Search on CIFAR-10 with Zero-Cost-PT, ten proposals of 17 decisions, then the usual training of the found cells on
ImageNet. The paper says batches of 1, its code has 16, and NASWOT, which decides the edges, takes more than one sample.
Here cells are searched for and the parameters of their networks for ImageNet counted; they are not trained. The small
form has one search for each proxy, of one proposal, in a supernet of 3 cells and 2 channels.

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


@experiment
class DextrTable2(NetworkSearches):
    """Three proxies."""

    name = "dextr-table2"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 2"
    full = SearchSettings(batch_size=16, evaluations=170)
    quick = SearchSettings(
        networks=1, batch_size=2, evaluations=17, options=(("channels", 2), ("cells", 3), ("validations", 1))
    )
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        label: NetworkSearch("darts", proxy, "zero_cost_pt", options={"proxy": proxy})
        for label, proxy in (("Dextr", "dextr"), ("ZiCo", "zico"), ("MeCo", "meco"))
    }
    paper = grid(
        ("top-1 error %", "top-5 error %", "params M", "GPU days"),
        {
            "Dextr": (24.6, 7.4, 6.6, 0.07),
            "ZiCo": (24.9, 7.6, 7.7, 0.02),
            "MeCo": (25.1, 7.7, 7.8, 0.04),
            "TE-NAS": (26.2, 8.3, 6.3, 0.05),
        },
    )
    columns = ("params M",)
    built_in = "darts_imagenet"
    unmeasured = IMAGENET
