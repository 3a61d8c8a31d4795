"""The three spaces of NAS-Bench-1Shot1, whose accuracies are those of the same cells in NAS-Bench-101.

Architectures are drawn uniformly, and those whose cell (`key`) is in the table of NAS-Bench-101 are kept, one for each
cell. In a table with 15,000 of the 423,624 cells, 30,000 draws with seed 0 hit 91, 219 and 240 cells.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from random import Random
from typing import Any

from epochzero.errors import DataError
from epochzero.registry import spaces
from epochzero.tables import AccuracyTable
from epochzero_papers.harness.correlations import Correlations, Target
from epochzero_papers.harness.files import NB101

ONE_SHOT = {"S1": "nb1shot1_s1", "S2": "nb1shot1_s2", "S3": "nb1shot1_s3"}
TARGETS = tuple(Target(label, space, NB101, "test_acc_108ep") for label, space in ONE_SHOT.items())
DRAWS = 30_000
"""the most cells that are looked up"""


class OneShotCorrelations(Correlations):
    """Correlations in the three spaces."""

    targets = TARGETS

    def sampled(
        self, target: Target, table: AccuracyTable, networks: int, seed: int, among: Container[str] | None = None
    ) -> tuple[list[Any], list[int]]:
        space, row_of = spaces[target.space], rows_by_key(tuple(table.archs))
        rng = Random(seed)
        chosen: dict[int, Any] = {}
        for _ in range(DRAWS):
            cell = space.sample(rng)
            row = row_of.get(space.key(cell))
            if row is not None and (among is None or space.text(cell) in among):
                chosen.setdefault(row, cell)
            if len(chosen) == networks:
                break
        if len(chosen) < 3:
            raise DataError(
                f"{table.source} has {len(chosen)} of {DRAWS:,} random cells of {target.space}, too few to correlate: "
                "give a table with more of NAS-Bench-101."
            )
        return list(chosen.values()), list(chosen)


@lru_cache(maxsize=1)
def rows_by_key(archs: tuple[str, ...]) -> dict[str, int]:
    """Returns the row of each cell of NAS-Bench-101."""
    nb101 = spaces["nb101"]
    return {nb101.key(nb101.parse(text)): row for row, text in enumerate(archs)}
