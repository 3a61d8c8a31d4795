"""What is listed of Dextr alone: networks that it found, trained on ImageNet.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from epochzero.experiments.files import CIFAR10
from epochzero.experiments.planned import IMAGENET, Planned, grid, plan

DEXTR = "Dextr (openreview.net/forum?id=X0uPof5DVh)"

plan(
    __name__,
    Planned(
        "dextr-table2",
        f"{DEXTR}, Table 2",
        "Dextr, Table 2: networks found in the DARTS space by Zero-Cost-PT, trained on ImageNet.",
        IMAGENET,
        "Search on CIFAR-10 with Zero-Cost-PT at batch 1, then the usual training of the found cells on ImageNet.",
        "as named",
        grid(
            ("top-1 error %", "top-5 error %", "params M", "GPU days"),
            {
                "Dextr": (24.6, 7.4, 6.6, 0.07),
                "ZiCo": (24.9, 7.6, 7.7, 0.02),
                "MeCo": (25.1, 7.7, 7.8, 0.04),
                "TE-NAS": (26.2, 8.3, 6.3, 0.05),
            },
        ),
        (CIFAR10,),
    ),
    Planned(
        "dextr-table3",
        f"{DEXTR}, Table 3",
        "Dextr, Table 3: vision transformers found in the AutoFormer spaces under 6 M and 24 M parameters.",
        IMAGENET,
        "Search within the limit in the framework of TF-TAS and AZ-NAS, then training on ImageNet.",
        "as named",
        grid(
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
        ),
    ),
    Planned(
        "dextr-table8",
        f"{DEXTR}, Table 8",
        "Dextr, Table 8: a network found in the MobileNet-v2 space under 450 M FLOPs.",
        IMAGENET,
        "Evolution with a population of 1,024 and 1e5 iterations as in AZ-NAS, then training on ImageNet.",
        "as named",
        grid(("FLOPs M", "top-1 accuracy %", "GPU days"), {"Dextr": (457, 78.8, 0.6), "AZ-NAS": (462, 78.6, 0.4)}),
    ),
)
