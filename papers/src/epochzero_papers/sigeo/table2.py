"""SiGeo, Table 2: rank correlation of zero-shot proxies with test accuracy on five benchmarks.

Spearman's and Kendall's correlation, no warm-up, batches of 64, four of them for SiGeo, weights l1, l2, l3 = 1, 1, 0;
ZiCo as its authors' code has it, with two. The paper took the baselines from NAS-Bench-Suite-Zero, which correlates
with validation accuracy; here all are compared with test accuracy, as the table's caption says. The paper does not say
how many networks. `plain` is declared as lower-is-better here: the paper's figures for it are given with the sign
turned. Images as in Dextr's Table 1. ZiCo on NAS-Bench-101 is .63 here and .41 in Dextr's Table 1.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import (
    NB101_C10,
    NB201_C10,
    NB201_C100,
    NB201_IN16,
    Correlations,
    Figures,
    Target,
)
from epochzero_papers.harness.files import NB301


@experiment
class SigeoTable2(Correlations):
    """Fifteen proxies."""

    name = "sigeo-table2"
    source = "SiGeo (arXiv:2311.13169), Table 2"
    targets = (NB101_C10, NB201_C10, NB201_C100, NB201_IN16, Target("NB301", "nb301", NB301, "cifar10_val"))
    spearman: ClassVar[Figures] = {
        "epe_nas": (0.00, 0.70, 0.60, 0.33, 0.00),
        "fisher": (-0.28, 0.50, 0.54, 0.48, -0.28),
        "flops": (0.36, 0.69, 0.71, 0.67, 0.42),
        "grad_norm": (-0.25, 0.58, 0.63, 0.57, -0.04),
        "grasp": (0.27, 0.51, 0.54, 0.55, 0.34),
        "jacov": (-0.29, 0.75, 0.71, 0.71, -0.04),
        "l2_norm": (0.50, 0.68, 0.72, 0.69, 0.45),
        "naswot": (0.31, 0.77, 0.80, 0.77, 0.47),
        "params": (0.37, 0.72, 0.73, 0.69, 0.46),
        "plain": (0.32, 0.26, 0.21, 0.22, 0.32),
        "snip": (-0.19, 0.58, 0.63, 0.57, -0.05),
        "synflow": (0.31, 0.73, 0.76, 0.75, 0.18),
        "zen": (0.59, 0.35, 0.35, 0.39, 0.43),
        "zico": (0.63, 0.74, 0.78, 0.79, 0.50),
        "sigeo": (0.63, 0.78, 0.82, 0.80, 0.50),
    }
    kendall: ClassVar[Figures] = {
        "epe_nas": (0.00, 0.52, 0.43, 0.23, 0.00),
        "fisher": (-0.20, 0.37, 0.40, 0.36, -0.19),
        "flops": (0.25, 0.50, 0.52, 0.48, 0.29),
        "grad_norm": (-0.17, 0.42, 0.47, 0.42, -0.03),
        "grasp": (0.18, 0.35, 0.38, 0.39, 0.23),
        "jacov": (-0.20, 0.57, 0.54, 0.54, -0.03),
        "l2_norm": (0.35, 0.49, 0.52, 0.50, 0.31),
        "naswot": (0.21, 0.58, 0.62, 0.59, 0.32),
        "params": (0.25, 0.54, 0.55, 0.52, 0.31),
        "plain": (0.22, 0.18, 0.14, 0.15, 0.22),
        "snip": (-0.14, 0.43, 0.47, 0.42, -0.03),
        "synflow": (0.21, 0.54, 0.57, 0.56, 0.12),
        "zen": (0.42, 0.27, 0.28, 0.29, 0.30),
        "zico": (0.46, 0.54, 0.58, 0.60, 0.35),
        "sigeo": (0.46, 0.58, 0.62, 0.61, 0.35),
    }
