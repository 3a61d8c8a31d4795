"""SiGeo, Table 4: networks of 1 M parameters selected for CIFAR by zero-shot proxies, and trained.

Evolution in ZenNAS's residual space, population 512, 480,000 iterations, 4 batches of 64; 1,440 epochs of SGD (momentum
.9, weight decay 5e-4, rate .1, cosine, batch 256) with EfficientNet-B3 as teacher; 3 runs. Here there is no teacher,
and CIFAR-10 alone is searched and trained on (recipe `zen`). `random` is the largest of as many random networks. The
small form trains for one epoch on a few images: its accuracies show that the code runs to its end and say nothing about
the networks.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from epochzero.train.recipes import RECIPES
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.network_searches import NetworkSearch, NetworkSearches, SearchSettings

MILLION = 1e6
PROXIES = ("flops", "grad_norm", "synflow", "naswot", "zen", "zico", "sigeo")


@experiment
class SigeoTable4(NetworkSearches):
    """Seven proxies and none."""

    name = "sigeo-table4"
    source = "SiGeo (arXiv:2311.13169), Table 4"
    full = SearchSettings(evaluations=480_000, epochs=1440)
    quick = SearchSettings(batch_size=8, evaluations=4, images=64)
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "random": NetworkSearch("resnet", "params", "random", max_params=MILLION),
        **{proxy: NetworkSearch("resnet", proxy, "evolution_zen", max_params=MILLION) for proxy in PROXIES},
    }
    paper = grid(
        ("CIFAR-10", "CIFAR-100"),
        {
            "random": (93.50, 71.10),
            "flops": (93.10, 64.70),
            "grad_norm": (92.80, 65.40),
            "synflow": (96.10, 75.90),
            "naswot": (96.00, 77.50),
            "zen": (96.2, 80.10),
            "zico": (96.96, 81.12),
            "sigeo": (97.01, 81.19),
        },
    )
    columns = ("params M",)
    tested: ClassVar[Mapping[str, bool]] = {"CIFAR-10": False}
    recipe = replace(RECIPES["zen"], warm_up=0)
    unmeasured = "a second search and training on all of CIFAR-100"
