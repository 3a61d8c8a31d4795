"""NASI in the DARTS space: test errors of the networks that it selects, trained on CIFAR.

Search with a fixed (FIX, nu = 100) and an adaptive constraint (ADA, from 500 on), mu = 2, 100 steps, then 600 epochs on
CIFAR. Here on CIFAR-10 alone. The small form searches in a supernet of 3 cells and 4 channels, and trains for one epoch
on a few images: its errors show that the code runs to its end and say nothing about the networks.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Number of the table as in chapter 6 of Shu's thesis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from epochzero.train.recipes import RECIPES
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.network_searches import NetworkSearch, NetworkSearches, SearchSettings


@experiment
class ThesisTable62(NetworkSearches):
    """Two constraints."""

    name = "thesis-table6.2"
    source = "Shu, thesis (NASI, arXiv:2109.00817), Table 6.2"
    full = SearchSettings(evaluations=100, epochs=600)
    quick = SearchSettings(batch_size=4, evaluations=4, options=(("channels", 4), ("cells", 3)), images=16)
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "NASI-FIX": NetworkSearch("darts", "params", "nasi", options={"mu": "2", "nu": "100"}),
        "NASI-ADA": NetworkSearch("darts", "params", "nasi", options={"mu": "2", "nu": "adaptive", "nu0": "500"}),
    }
    paper = grid(
        ("C10 error %", "C100 error %", "params M", "GPU hours"),
        {"NASI-FIX": (2.79, 16.12, 3.9, 0.24), "NASI-ADA": (2.90, 16.84, 3.7, 0.24)},
    )
    columns = ("params M",)
    tested: ClassVar[Mapping[str, bool]] = {"C10 error %": True}
    recipe = RECIPES["darts"]
    unmeasured = "a second training of each network, on all of CIFAR-100"
