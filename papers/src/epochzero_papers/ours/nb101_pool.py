"""NAS-Bench-101 as a pool: networks selected by evolution with dextr and by HNAS, and their regret.

Two pools. "Scored": networks whose scores a table holds; evolution by dextr (1,000 evaluations or all), HNAS with every
metric (20 evaluations, feedback the validation accuracy after 12 epochs) and searches by feedback alone. "Every cell":
evolution by dextr among all cells of the accuracy table, each scored when the search asks for it, on one batch of
CIFAR-10 if the data folder has it, else on pink noise; `evaluations` networks for each of three searches. A child is a
neighbour of the parent that the pool holds, or a random cell of the pool.

Regret is the difference of the test accuracy after 108 epochs from the best of the same pool. HNAS' pool is the part
with known kappa, so only its regret can be compared with the others. No paper prints these figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from epochzero.engine.space_networks import batch_for
from epochzero.objectives.objective import parse_objective
from epochzero.study.loop import run_search
from epochzero.study.methods.hnas import METRICS
from epochzero.study.result import Result
from epochzero.study.sources import Listed, TableSource
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero_papers.harness.base import Measurement, Row, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.files import CIFAR10, NB101, File
from epochzero_papers.harness.table_searches import (
    SECONDS,
    Benchmark,
    SearchTables,
    TableSearch,
    TableSearches,
    Trials,
    accuracies,
    find_pool,
    found_in,
    left_out,
)

SCORES = File(
    ("nb101_scores.csv", "nb101_1000_cifar10.csv.gz"),
    "proxy scores of networks of NAS-Bench-101, column arch and one for each proxy",
    "`python -m epochzero.bare sweep --space nb101` makes it",
)
KERNELS = File(("nb101_kernels.csv", "nb101_200_kernels_tf32.csv.gz"), "ntk_cond and ntk_trace of some of these")
FEEDBACK = "table:val_acc_12ep"
REGRET = "regret %"
BY = "dextr"
EVERY = "every cell: evolution, dextr"
SEARCHES = 3
"""among every cell"""
LARGE = 100_000


@dataclass(frozen=True)
class Cells(Trials):
    """Searches of the scored networks, and the number of networks scored in each search of every cell."""

    batch_size: int = 16
    evaluations: int = 100
    """0: searches of every cell are left out"""


@experiment
class NB101Pool(TableSearches):
    """Selected networks of NAS-Bench-101."""

    name = "nb101-pool"
    source = "HNAS and Dextr on NAS-Bench-101"
    full = Cells(networks=10)
    quick = Cells(networks=3, evaluations=0)
    benchmark = Benchmark("nb101", NB101, SCORES, {"C10": "test_acc_108ep"}, percent=100)
    searches = (
        TableSearch("evolution, dextr", "evolution", "dextr", 1000),
        TableSearch("random, dextr (N=100)", "random", "dextr", 100),
        *(TableSearch(f"HNAS ({m})", "hnas", FEEDBACK, 20, {"metric": m, "networks": LARGE}) for m in METRICS),
        TableSearch("random, 20 evaluations", "random", FEEDBACK, 20, {"batch": 1}),
        TableSearch("REA, 20 evaluations", "evolution", FEEDBACK, 20, {"population": 10, "tournament": 3, "batch": 1}),
    )

    def tables(self, folder: Path) -> SearchTables:
        tables = super().tables(folder)
        kernels = find_pool(folder, KERNELS)
        if kernels is None:
            return tables
        space = tables.pool.space
        return replace(tables, pool=joined(tables.pool, TableSource.read(kernels, space, pool=True)))

    def measure(self, work: Work) -> Measurement:
        tables, searched, rows = self._all_searched(work)
        missing = left_out(tables, self.searches)
        if work.settings.evaluations:
            searched[EVERY] = self._among_every_cell(tables, work)
            rows += self._selected(tables, EVERY, searched[EVERY], tables.accuracies.table.archs)
        else:
            missing.append(f"{EVERY}: left out of this small form.")
        return found_in(tables, rows, of_winners(tables, searched), missing)

    def _all_searched(self, work: Work) -> tuple[SearchTables, dict[str, list[Result]], list[Row]]:
        """Returns the tables, the results of all searches, and their rows."""
        tables, searched = self.run_all(work, self.searches, SearchTables.search)
        needs = {spec.label: spec.needs for spec in self.searches}
        rows: list[Row] = []
        for label, outcomes in searched.items():
            rows += self._selected(tables, label, outcomes, whole(tables.pool, needs[label]))
        return tables, searched, rows

    def _selected(self, tables: SearchTables, label: str, outcomes: Sequence[Result], pool: Sequence[str]) -> list[Row]:
        """Returns rows of accuracy, deviation and regret of the winners, and the seconds of a search."""
        rows = self._rows(label, accuracies(tables, outcomes))
        held = [accuracy for accuracy in accuracies(tables, outcomes)["C10"] if accuracy is not None]
        best = max(filter(None, (tables.accuracy(arch, "C10") for arch in pool)))
        figures = {
            REGRET: [best - accuracy for accuracy in held],
            SECONDS: [outcome.seconds for outcome in outcomes],
        }
        about = {REGRET: f"C10, best of {len(pool):,}: {best:.2f}", SECONDS: "one search"}
        return rows + [
            Row("nb101", label, about[name], name, estimate(found), len(outcomes) - len(found))
            for name, found in figures.items()
            if found
        ]

    def _among_every_cell(self, tables: SearchTables, work: Work) -> list[Result]:
        """Runs searches that compute their scores, which the store keeps."""
        settings = work.settings
        images = work.data or CIFAR10.find(work.folder) or "pink"
        space = tables.accuracies.space
        batch = batch_for(space, images, size=settings.batch_size, seed=work.seed)
        objective = parse_objective(BY)
        task = Task(space, objective.proxies, batch, device=work.device, sources=(Listed(tables.accuracies),))
        results: list[Result] = []
        for place in range(SEARCHES):

            def tell(outcome: Result, done: int = place * settings.evaluations) -> None:
                work.progress(done + outcome.evaluated, SEARCHES * settings.evaluations)

            seed = work.seed + place
            results.append(
                run_search(
                    task,
                    "evolution",
                    settings.evaluations,
                    seed=seed,
                    objective=objective,
                    store=work.store,
                    options={"population": 20, "tournament": 5},
                    progress=tell,
                )
            )
        return results


def of_winners(tables: SearchTables, searched: Mapping[str, Sequence[Result]]) -> dict[str, list[float | None]]:
    """Returns the test accuracies of the winners of each search."""
    return {label: accuracies(tables, outcomes)["C10"] for label, outcomes in searched.items()}


def whole(pool: TableSource, columns: Sequence[str]) -> list[str]:
    """Returns the networks of a pool that have all these scores."""
    texts = [pool.space.text(arch) for arch in pool.archs]
    return [text for text in texts if all(pool.value(text, column).ok for column in columns)]


def joined(pool: TableSource, more: TableSource) -> TableSource:
    """Returns the pool with missing columns from another table; empty for networks that the other lacks."""
    rows = [more.known(pool.space.text(arch)) for arch in pool.archs]
    own = {name: pool.table.cells(name) for name in pool.table.columns}
    new = {name: more.table.cells(name) for name in more.table.columns if name not in own}
    cells = own | {name: [None if row is None else found[row] for row in rows] for name, found in new.items()}
    table = AccuracyTable(pool.table.archs, cells, f"{pool.table.source} and {more.table.source}")
    return TableSource(table, pool.space, f"{pool.name} and {more.name}", pool=True)
