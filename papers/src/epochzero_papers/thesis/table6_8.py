"""Thesis, Table 6.8: NASI with other batch sizes in NAS-Bench-1Shot1, test errors of the cells that it selects.

The trace norm is that of a batch of 8 to 128 images; otherwise as Table 6.4 (`nasi/one_shot.py`), with as many steps
for each size.

Shu. Understanding and improving neural architecture search (thesis, section 6.6); NASI, arXiv:2109.00817.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.figures import grid
from epochzero_papers.nasi.one_shot import QUICK, Budget, OneShotSearches, Reading, Search


@dataclass(frozen=True)
class Batches(Budget):
    """Which batch sizes; `batch_size` is not used."""

    sizes: tuple[int, ...] = (8, 16, 32, 64, 128)


@experiment
class ThesisTable68(OneShotSearches):
    """Five sizes."""

    name = "thesis-table6.8"
    source = "Shu, thesis (NASI, arXiv:2109.00817), Table 6.8"
    full: Batches = Batches()
    quick: Batches = Batches(**asdict(QUICK), sizes=(8, 16))
    paper = grid(
        ("S1", "S2", "S3"),
        {
            "b = 8": (6.8, 6.9, 7.0),
            "b = 16": (6.7, 7.3, 6.6),
            "b = 32": (6.7, 7.1, 6.7),
            "b = 64": (6.0, 7.2, 6.6),
            "b = 128": (7.0, 6.8, 7.1),
        },
    )

    def searches(self, settings: Budget) -> Sequence[Search]:
        assert isinstance(settings, Batches)
        return [Search(size, {}, [Reading(f"b = {size}", settings.steps)]) for size in settings.sizes]
