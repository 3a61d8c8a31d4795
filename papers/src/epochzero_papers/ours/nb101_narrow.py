"""NAS-Bench-101's 15,000 cells as a pool, scored in narrow networks, for HNAS and evolution with dextr.

Kappa of a full network takes 64 backward passes of three billion multiply-accumulates a sample. In a network whose stem
has 16 channels in place of 128 (`nb101_stem16`), with batches of 16, kappa is affordable for all cells of a table. The
table of scores in docs/data was made this way. Feedback and test accuracies are those of the full networks.

The same searches as in `nb101-pool`, among all cells, with the regret against the best of them. No paper prints these
figures.
"""

from __future__ import annotations

from pathlib import Path

from epochzero_papers.harness.base import Measurement, Work, experiment
from epochzero_papers.harness.files import NB101, File
from epochzero_papers.harness.table_searches import Benchmark, SearchTables, TableSearches, found_in, left_out
from epochzero_papers.ours.nb101_pool import Cells, NB101Pool, of_winners

SCORES = File(
    ("nb101_15k_stem16_cifar10.parquet",),
    "proxy scores of networks of NAS-Bench-101 with narrow stems, column arch and one for each proxy",
    "`python -m epochzero.bare sweep --space nb101_stem16 --archs` makes it",
)


@experiment
class NB101Narrow(NB101Pool):
    """Networks selected from all cells with known accuracies."""

    name = "nb101-narrow"
    source = "HNAS and Dextr on NAS-Bench-101, in narrow networks"
    full = Cells(networks=10, evaluations=0)
    quick = Cells(networks=3, evaluations=0)
    benchmark = Benchmark("nb101", NB101, SCORES, {"C10": "test_acc_108ep"}, percent=100)

    def tables(self, folder: Path) -> SearchTables:
        return TableSearches.tables(self, folder)

    def measure(self, work: Work) -> Measurement:
        tables, searched, rows = self._all_searched(work)
        return found_in(tables, rows, of_winners(tables, searched), left_out(tables, self.searches))
