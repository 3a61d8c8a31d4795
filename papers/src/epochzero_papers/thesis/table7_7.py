"""Thesis, Table 7.7: HNAS in the DARTS space, trained on CIFAR.

HNAS searches networks of 8 cells and 16 channels (the published code has 5 cells): a pool of 60,000 is scored by the
trace metric and kappa, and 25 that its bound likes best are trained for 10 epochs on half of the training images, which
tunes the bound. The winner, as a network of 20 cells and 36 channels, is trained for 600 epochs; five independent
evaluations. Here on CIFAR-10 alone. The small form has a pool of 4 and M from SNIP, and trains on a few images: its
errors show that the code runs to its end and say nothing about the networks.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from epochzero.train.recipes import RECIPES
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.network_searches import NetworkSearch, NetworkSearches, SearchSettings

POOL = (("acquisition", "ucb"), ("networks", 60_000), ("probes", 6))


@experiment
class ThesisTable77(NetworkSearches):
    """One search."""

    name = "thesis-table7.7"
    source = "Shu, thesis, Table 7.7"
    full = SearchSettings(networks=5, evaluations=25, options=POOL, epochs=600)
    quick = SearchSettings(
        batch_size=2, evaluations=2, options=(("metric", "snip"), ("networks", 4), ("probes", 2)), images=16
    )
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "HNAS (C10)": NetworkSearch("darts_search", "", "hnas", feedback="hnas(epochs=10)")
    }
    paper = grid(("C10 error %", "C100 error %"), {"HNAS (C10)": (2.62, 17.10), "HNAS (C100)": (2.78, 16.29)})
    columns = ("params M",)
    built_in = "darts"
    tested: ClassVar[Mapping[str, bool]] = {"C10 error %": True}
    recipe = RECIPES["darts"]
    unmeasured = "a second training of each network, on all of CIFAR-100"
