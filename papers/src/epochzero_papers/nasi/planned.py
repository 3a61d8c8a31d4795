"""The table of NASI that is listed only: networks that it selected, trained.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Numbers of tables as in chapter 6 of Shu's thesis, which has them all.
"""

from __future__ import annotations

from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.planned import IMAGENET, Planned, plan

CHAPTER = "Shu, thesis (NASI, arXiv:2109.00817)"

plan(
    __name__,
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
