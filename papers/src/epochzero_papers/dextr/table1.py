"""Dextr, Table 1: rank correlation of proxies with test accuracy on eight benchmarks.

Spearman's correlation over 1,000 random networks, mean of 3 runs; one image for Dextr, here batches of 64 for the rest.
The proxies see images of the benchmark's own data: CIFAR-10 for NAS-Bench-101, -301 and the first column of -201,
CIFAR-100 and ImageNet16-120 for the other two (CIFAR-10 if those images are missing, which the result reports),
Taskonomy for TransNAS-Bench-101 micro. The paper took all figures but its own and MeCo's from SWAP-NAS, and ran ZiCo,
MeCo and SWAP anew on NAS-Bench-101 and -301. ZiCo on NAS-Bench-101 is .41 here and .63 in SiGeo's Table 2. Dextr's
figure for jigsaw is that of its SVD term alone: its code falls back to it.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
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
from epochzero_papers.harness.files import CIFAR10, NB301, TASKONOMY, TRANSNAS


@experiment
class DextrTable1(Correlations):
    """Ten proxies."""

    name = "dextr-table1"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 1"
    targets = (
        Target("TNB-Object", "transnas_micro", TRANSNAS, "class_object_test_top1", (TASKONOMY,)),
        Target("TNB-Scene", "transnas_micro_scene", TRANSNAS, "class_scene_test_top1", (TASKONOMY,)),
        Target("TNB-Jigsaw", "transnas_micro_jigsaw", TRANSNAS, "jigsaw_test_top1", (TASKONOMY,)),
        NB101_C10,
        NB201_C10,
        NB201_C100,
        NB201_IN16,
        Target("NB301", "nb301", NB301, "cifar10_val", (CIFAR10,)),
    )
    spearman: ClassVar[Figures] = {
        "grasp": (-0.22, -0.43, -0.12, 0.27, 0.39, 0.46, 0.45, 0.34),
        "fisher": (0.44, -0.13, 0.30, -0.28, 0.40, 0.46, 0.42, -0.28),
        "grad_norm": (0.39, -0.33, 0.36, -0.24, 0.42, 0.49, 0.47, -0.04),
        "snip": (0.45, -0.14, 0.41, -0.19, 0.43, 0.49, 0.48, -0.05),
        "synflow": (0.48, 0.27, 0.47, 0.31, 0.74, 0.76, 0.75, 0.18),
        "params": (0.45, 0.32, 0.44, 0.38, 0.72, 0.73, 0.69, 0.46),
        "zico": (0.50, 0.70, 0.52, 0.41, 0.76, 0.79, 0.77, 0.49),
        "meco": (0.58, 0.62, 0.45, 0.57, 0.89, 0.88, 0.85, 0.43),
        "swap_reg": (0.48, 0.67, 0.47, 0.49, 0.88, 0.90, 0.87, 0.49),
        "dextr": (0.53, 0.75, 0.55, 0.65, 0.90, 0.91, 0.87, 0.44),
    }
