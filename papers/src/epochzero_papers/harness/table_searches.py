"""Experiments that search a benchmark many times: test accuracies of the networks that searches select.

A recipe names its searches. Scores come from the pool, a table of proxy scores of all networks (docs/data has one of
NAS-Bench-201), feedback and test accuracies from the benchmark's table, so no network is run, and the seconds are those
of the searches alone. Each search runs with `networks` seeds, each of which selects one network; the figures are mean
and standard deviation of the test accuracies of those networks, with intervals over the searches by Student's t and
chi-square. A winner that the table does not hold is counted and left out. Seeds change only the search: all share one
table of scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from epochzero.data import Batch
from epochzero.engine import parse
from epochzero.engine.space_networks import batch_for
from epochzero.objectives.objective import is_looked_up, parse_objective
from epochzero.registry import options_of, searches, spaces
from epochzero.store import Store
from epochzero.study.loop import Watch, run_search
from epochzero.study.methods.base import Pooling
from epochzero.study.result import Result
from epochzero.study.sources import TableSource
from epochzero.study.task import Task
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Status, Work
from epochzero_papers.harness.estimates import DEVIATION, estimate
from epochzero_papers.harness.files import FOLDER, NB201, File, missing

POOL = File(
    ("nb201_all_cifar10.parquet", "nb201_scores.parquet", "nb201_scores.csv"),
    "proxy scores of the networks of NAS-Bench-201, column arch and one for each proxy",
    "`python -m epochzero.bare sweep` makes it",
)
OWN = Path(__file__).parents[4] / "docs" / "data"
"""the project's own tables, in a checkout of the repository"""
FEEDBACK = "table:cifar10_val_12ep"
"""validation accuracy on CIFAR-10 after 12 epochs"""
ACCURACY, SECONDS = "test accuracy %", "seconds"
T = TypeVar("T")
Printed = Mapping[str, Sequence[tuple[float, float | None]]]
"""a paper's figures: by label, for each of C10, C100 and IN16, accuracy and deviation"""


@dataclass(frozen=True)
class Benchmark:
    """A space with the test accuracies of its networks, and scores of them."""

    space: str
    table: File
    pool: File
    accuracies: Mapping[str, str]
    """the name of each reported accuracy, and its column in the table"""
    percent: float = 1.0
    """the factor that turns an accuracy of the table into percent"""


ON_NB201 = Benchmark("nb201", NB201, POOL, {"C10": "cifar10_test", "C100": "cifar100_test", "IN16": "imagenet16_test"})


@dataclass(frozen=True)
class Trials(Settings):
    """`networks` is the number of searches of each kind; each selects a network."""

    networks: int = 10


class TableSearch(NamedTuple):
    """A search, its objective and its length."""

    label: str
    method: str
    proxy: str
    evaluations: int
    options: Mapping[str, Any] = {}

    @property
    def needs(self) -> list[str]:
        """The columns of the pool that it reads."""
        maker = searches[self.method]
        wanted = list(maker.wants(options_of(maker) | dict(self.options)).proxies) if _pools(maker) else []
        own = [proxy.text for proxy in parse_objective(self.proxy).proxies if not is_looked_up(proxy)]
        return [*own, *(parse(text).text for text in wanted)]


def _pools(maker: Any) -> bool:
    return isinstance(maker, Pooling)


@dataclass(frozen=True)
class SearchTables:
    """The tables of scores and accuracies that searches read."""

    pool: TableSource
    accuracies: TableSource
    batch: Batch
    benchmark: Benchmark = ON_NB201

    @staticmethod
    def open(experiment: str, folder: Path, benchmark: Benchmark = ON_NB201) -> SearchTables:
        pool, table = find_pool(folder, benchmark.pool), benchmark.table.find(folder)
        if pool is None or table is None:
            lacking = [file for file, path in ((benchmark.pool, pool), (benchmark.table, table)) if path is None]
            raise missing(experiment, lacking, folder)
        space = spaces[benchmark.space]
        batch = batch_for(space, "pink", size=1)
        return SearchTables(TableSource.read(pool, space, pool=True), TableSource.read(table, space), batch, benchmark)

    @property
    def about(self) -> str:
        return f"scores of {self.pool.name}, accuracies of {self.accuracies.name}"

    def lacks(self, spec: TableSearch) -> list[str]:
        return [column for column in spec.needs if column not in self.pool.table.columns]

    def search(self, spec: TableSearch, seed: int, progress: Watch | None = None) -> Result:
        objective = parse_objective(spec.proxy)
        task = Task(self.pool.space, objective.proxies, self.batch, sources=(self.pool, self.accuracies))
        with Store.open(":memory:") as store:
            return run_search(
                task,
                spec.method,
                spec.evaluations,
                seed=seed,
                objective=objective,
                options=spec.options,
                store=store,
                progress=progress,
            )

    def accuracy(self, arch: str, label: str) -> float | None:
        """Returns a network's accuracy in percent; None if the table does not hold it."""
        score = self.accuracies.value(arch, self.benchmark.accuracies[label])
        return score.value * self.benchmark.percent if score.ok else None


def find_pool(folder: str | Path, pool: File = POOL) -> Path | None:
    """Returns the table of scores in the data folder, or the project's own."""
    return pool.find(folder) or pool.find(OWN)


def left_out(tables: SearchTables, searches: Sequence[TableSearch]) -> list[str]:
    """Returns sentences about the searches that this pool does not allow."""
    lacking = {spec.label: tables.lacks(spec) for spec in searches}
    return [
        f"{label} is left out: the pool has no column {' and no '.join(columns)}."
        for label, columns in lacking.items()
        if columns
    ]


class TableSearches(Recipe):
    """An experiment whose rows are test accuracies of selected networks."""

    full: Trials = Trials(networks=10)
    quick: Trials = Trials(networks=3)
    benchmark: Benchmark = ON_NB201
    searches: ClassVar[Sequence[TableSearch]]
    paper: ClassVar[Printed] = {}
    waiting: ClassVar[Mapping[str, str]] = {}
    """rows of the paper that are measured elsewhere, with the command"""

    @property
    def needs(self) -> Sequence[File]:  # type: ignore[override]
        return (self.benchmark.table, self.benchmark.pool)

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [
            Quoted(label, column, statistic, value)
            for label, figures in self.paper.items()
            for column, pair in zip(self.benchmark.accuracies, figures, strict=True)
            for statistic, value in zip((ACCURACY, DEVIATION), pair, strict=True)
            if value is not None
        ]

    def status(self, folder: str | Path = FOLDER) -> Status:
        held = self.benchmark.table.find(folder) and find_pool(folder, self.benchmark.pool)
        return "ready" if held else "needs data"

    def measure(self, work: Work) -> Measurement:
        tables, outcomes = self.run_all(work, self.searches, SearchTables.search)
        rows: list[Row] = []
        for label, searched in outcomes.items():
            rows += self._rows(label, accuracies(tables, searched))
            seconds = estimate([outcome.seconds for outcome in searched])
            rows.append(Row(self.benchmark.space, label, "one search", SECONDS, seconds, 0))
        values = {label: accuracies(tables, searched)["C10"] for label, searched in outcomes.items()}
        more = [f"{label} is not measured here but by {how}." for label, how in self.waiting.items()]
        return found_in(tables, rows, values, [*left_out(tables, self.searches), *more])

    def tables(self, folder: Path) -> SearchTables:
        return SearchTables.open(self.name, folder, self.benchmark)

    def run_all(
        self, work: Work, searches: Sequence[TableSearch], of_one: Callable[[SearchTables, TableSearch, int], T]
    ) -> tuple[SearchTables, dict[str, list[T]]]:
        """Returns the tables, and the results of each search for each seed, without searches that lack scores."""
        tables = self.tables(work.folder)
        work.begin(pool=tables.pool.name, table=tables.accuracies.name)
        held = [spec for spec in searches if not tables.lacks(spec)]
        seeds = range(work.seed, work.seed + work.settings.networks)
        results: dict[str, list[T]] = {spec.label: [] for spec in held}
        total = len(held) * len(seeds)
        for place, (spec, seed) in enumerate(itertools.product(held, seeds)):
            work.progress(place, total)
            results[spec.label].append(of_one(tables, spec, seed))
        work.progress(total, total)
        return tables, results

    def _rows(self, label: str, accuracies_of: Mapping[str, Sequence[float | None]]) -> list[Row]:
        printed = {(figure.x, figure.y, figure.statistic): figure.value for figure in self.quoted}
        rows = []
        for column, selected in accuracies_of.items():
            known = [value for value in selected if value is not None]
            for statistic in (ACCURACY, DEVIATION):
                figure = estimate(known, statistic) if len(known) > 1 else None
                why = "" if figure is not None else "the table holds fewer than two of the winners"
                paper = printed.get((label, column, statistic))
                unheld = len(selected) - len(known)
                rows.append(Row(self.benchmark.space, label, column, statistic, figure, unheld, paper, why))
        return rows


def accuracies(tables: SearchTables, searched: Sequence[Result]) -> dict[str, list[float | None]]:
    """Returns the accuracies of the winners by their reported name."""
    labels = tables.benchmark.accuracies
    return {label: [tables.accuracy(outcome.winner.text, label) for outcome in searched] for label in labels}


def found_in(
    tables: SearchTables, rows: Sequence[Row], values: Mapping[str, Sequence[float | None]], missing: Sequence[str]
) -> Measurement:
    """Returns the measurement, with the values of each search."""
    space = tables.benchmark.space
    return Measurement(rows, {space: Sample.measured(space, values, tables.about)}, missing)
