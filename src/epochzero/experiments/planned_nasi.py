"""What is listed of NASI alone: networks that it found, trained.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Numbers of tables as in chapter 6 of Shu's thesis, which has them all.
"""

from __future__ import annotations

from epochzero.experiments.planned import IMAGENET, Planned, grid, plan

CHAPTER = "Shu, thesis (NASI, arXiv:2109.00817)"

plan(
    __name__,
    Planned(
        "thesis-table6.2",
        f"{CHAPTER}, Table 6.2",
        "NASI in the DARTS space: test errors of the networks that it selects, trained on CIFAR.",
        "600 epochs of training for each network: days of GPU time",
        "Search with a fixed (FIX) and an adaptive constraint (ADA), then training on CIFAR.",
        "as named",
        grid(
            ("C10 error %", "C100 error %", "params M", "GPU hours"),
            {"NASI-FIX": (2.79, 16.12, 3.9, 0.24), "NASI-ADA": (2.90, 16.84, 3.7, 0.24)},
        ),
    ),
    Planned(
        "thesis-table6.3",
        f"{CHAPTER}, Table 6.3",
        "NASI's networks on ImageNet.",
        IMAGENET,
        "The networks of Table 6.2 with 46 channels, trained on ImageNet.",
        "as named",
        grid(("top-1 error %", "top-5 error %"), {"NASI-FIX": (24.3, 7.3), "NASI-ADA": (25.0, 7.8)}),
    ),
)
