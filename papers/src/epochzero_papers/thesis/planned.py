"""The tables of the thesis that are listed only: ensembles on ImageNet (chapter 5), networks that HNAS selected (7).

Shu. Understanding and improving neural architecture search (thesis).
"""

from __future__ import annotations

from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.planned import IMAGENET, Planned, plan

THESIS = "Shu, thesis"

plan(
    __name__,
    Planned(
        "thesis-table5.3",
        f"{THESIS}, Table 5.3",
        "Thesis, Table 5.3: the ensembles of Table 5.2 on ImageNet.",
        IMAGENET,
        "Found on CIFAR-10, trained on ImageNet.",
        "as named",
        grid(
            ("top-1 error %", "top-5 error %"),
            {"NES-RS": (23.4, 6.8), "NESBS, MC sampling": (22.3, 6.2), "NESBS, SVGD-RD": (22.3, 6.1)},
        ),
    ),
    Planned(
        "thesis-table7.8",
        f"{THESIS}, Table 7.8",
        "Thesis, Table 7.8: HNAS's networks on ImageNet.",
        IMAGENET,
        "Found on CIFAR-100 and on ImageNet, trained on ImageNet.",
        "as named",
        grid(("top-1 error %", "top-5 error %"), {"HNAS (C100)": (24.8, 7.8), "HNAS (ImageNet)": (24.3, 7.4)}),
    ),
)
