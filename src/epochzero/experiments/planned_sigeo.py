"""What is listed of SiGeo alone: networks found for CIFAR, trained.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from epochzero.experiments.planned import Planned, grid, plan

SIGEO = "SiGeo (arXiv:2311.13169)"

plan(
    __name__,
    Planned(
        "sigeo-table4",
        f"{SIGEO}, Table 4",
        "SiGeo, Table 4: networks of 1 M parameters found for CIFAR by zero-shot proxies, and trained.",
        "480,000 evaluations and 1,440 epochs of training for each network: days of GPU time",
        "Evolution in ZenNAS's residual space, population 512, 480,000 iterations, 4 batches of 64; 1,440 epochs of "
        "SGD (momentum .9, weight decay 5e-4, rate .1, cosine, batch 256) with EfficientNet-B3 as teacher; 3 runs.",
        "accuracy %",
        grid(
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
        ),
    ),
)
