"""Thesis, Figure 6.2: NASI in NAS-Bench-1Shot1 by its budget, test errors of the cells that it selects.

Ten searches, read after an eighth, a quarter, a half and all of one epoch, compared with the mean of random cells
(`nasi/one_shot.py`). The thesis' figure also has searches that train (DARTS, GDAS, ENAS and others), for up to 20
epochs; it shows curves and prints no figure.

Shu. Understanding and improving neural architecture search (thesis, section 6.5.1); NASI, arXiv:2109.00817.
"""

from __future__ import annotations

from collections.abc import Sequence

from epochzero_papers.harness.base import experiment
from epochzero_papers.nasi.one_shot import Budget, OneShotSearches, Reading, Search

SHARES = {"1/8": 8, "1/4": 4, "1/2": 2, "all": 1}


@experiment
class ThesisFigure62(OneShotSearches):
    """Four budgets."""

    name = "thesis-figure6.2"
    source = "Shu, thesis (NASI, arXiv:2109.00817), Figure 6.2"
    full = Budget(networks=10)
    unmeasured = ("The searches that train a network on the way are not run here.",)

    def searches(self, settings: Budget) -> Sequence[Search]:
        readings = [
            Reading(f"NASI, {name} of the steps", max(1, settings.steps // part)) for name, part in SHARES.items()
        ]
        return [Search(settings.batch_size, {}, readings)]
