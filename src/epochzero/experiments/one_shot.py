"""The three spaces of NAS-Bench-1Shot1, whose accuracies are those of the same cells in NAS-Bench-101.

Cells are drawn uniformly, and those whose cell (`key`) the table of NAS-Bench-101 holds are kept, one for each cell.
With a table of 15,000 of the 423,624 cells that is one in thirty: the three spaces then have about 90, 270 and 1,900.
"""

from __future__ import annotations

from random import Random
from typing import Any

from epochzero.benchmarks import AccuracyTable
from epochzero.errors import DataError
from epochzero.experiments.correlations import Correlations, Target
from epochzero.experiments.files import NB101
from epochzero.registry import spaces

ONE_SHOT = {"S1": "nb1shot1_s1", "S2": "nb1shot1_s2", "S3": "nb1shot1_s3"}
TARGETS = tuple(Target(label, space, NB101, "test_acc_108ep") for label, space in ONE_SHOT.items())
DRAWS = 30_000
"""cells that are looked up at most"""


class OneShotCorrelations(Correlations):
    """Correlations in the three spaces."""

    targets = TARGETS

    def sampled(self, target: Target, table: AccuracyTable, networks: int, seed: int) -> tuple[list[Any], list[int]]:
        space, nb101 = spaces[target.space], spaces["nb101"]
        row_of = {nb101.key(nb101.parse(text)): row for row, text in enumerate(table.archs)}
        rng = Random(seed)
        chosen: dict[int, Any] = {}
        for _ in range(DRAWS):
            cell = space.sample(rng)
            row = row_of.get(space.key(cell))
            if row is not None:
                chosen.setdefault(row, cell)
            if len(chosen) == networks:
                break
        if len(chosen) < 3:
            raise DataError(
                f"{table.source} has {len(chosen)} of {DRAWS:,} random cells of {target.space}, too few to correlate: "
                "give a table with more of NAS-Bench-101."
            )
        return list(chosen.values()), list(chosen)
