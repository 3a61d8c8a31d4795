"""Thesis, Table 6.4: NASI with random labels and with random data, test errors of the cells that it selects.

Five searches each in the three spaces of NAS-Bench-1Shot1; random labels are uniform, random data standard Gaussian
(`nasi/one_shot.py`).

Shu. Understanding and improving neural architecture search (thesis, section 6.5.4); NASI, arXiv:2109.00817.
"""

from __future__ import annotations

from collections.abc import Sequence

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.nasi.one_shot import Budget, OneShotSearches, Reading, Search

KINDS = {"standard": {}, "random labels": {"labels": "random"}, "random data": {"data": "random"}}


@experiment
class ThesisTable64(OneShotSearches):
    """Three kinds of data."""

    name = "thesis-table6.4"
    source = "Shu, thesis (NASI, arXiv:2109.00817), Table 6.4"
    paper = grid(
        ("S1", "S2", "S3", "DARTS"),
        {
            "standard": (7.3, 7.2, 7.2, 2.95),
            "random labels": (6.8, 7.0, 7.5, 2.90),
            "random data": (6.6, 7.5, 7.3, 2.97),
        },
    )
    unmeasured = (
        "DARTS is left out: `epochzero search --method nasi --space darts` finds its cells, and each takes 600 epochs "
        "of training to have a test error.",
    )

    def searches(self, settings: Budget) -> Sequence[Search]:
        return [Search(settings.batch_size, kind, [Reading(name, settings.steps)]) for name, kind in KINDS.items()]
