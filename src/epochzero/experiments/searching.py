"""Experiments that search a benchmark again and again: test accuracies of the networks that searches select.

A recipe names its contests. Scores come from the pool, a table of proxy scores of all networks (docs/data has one of
NAS-Bench-201), feedback and test accuracies from the benchmark's table, so nothing is run, and the seconds are those of
the searches alone. Each contest is searched with as many seeds as `networks` says, each of which selects one network;
the figures are mean and standard deviation of the test accuracies of those networks, their intervals bootstrapped over
the searches. A winner that the table does not hold is counted and left out. The seeds move the search alone: all share
one table of scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from epochzero.combine.objective import is_looked_up, parse_objective
from epochzero.data import Batch
from epochzero.engine import parse
from epochzero.experiments.base import Found, Quoted, Recipe, Row, Sample, Settings, Status, Work
from epochzero.experiments.files import FOLDER, NB201, File, missing
from epochzero.registry import searches, spaces
from epochzero.run.network import batch_for
from epochzero.run.search import Outcome, Progress, defaults_of, run_search
from epochzero.run.sources import TableSource
from epochzero.run.task import Task
from epochzero.searches.base import Pooling
from epochzero.stats import Estimate
from epochzero.store import Store

POOL = File(
    ("nb201_all_cifar10.parquet", "nb201_scores.parquet", "nb201_scores.csv"),
    "proxy scores of the networks of NAS-Bench-201, column arch and one for each proxy",
    "`python -m epochzero.run.sweep` makes it",
)
OWN = Path(__file__).parents[3] / "docs" / "data"
"""the project's own tables, where it was not installed but checked out"""
ACCURACIES = {"C10": "cifar10_test", "C100": "cifar100_test", "IN16": "imagenet16_test"}
FEEDBACK = "table:cifar10_val_12ep"
"""validation accuracy on CIFAR-10 after 12 epochs"""
ACCURACY, DEVIATION, SECONDS = "test accuracy %", "deviation", "seconds"
RESAMPLES = 2000
Printed = Mapping[str, Sequence[tuple[float, float | None]]]
"""a paper's figures: by label, for each of C10, C100 and IN16, accuracy and deviation"""


@dataclass(frozen=True)
class Trials(Settings):
    """`networks` is how many searches there are of each kind, each of which selects a network."""

    networks: int = 10


class Contest(NamedTuple):
    """A search, what it goes by, and for how long."""

    label: str
    method: str
    proxy: str
    evaluations: int
    options: Mapping[str, Any] = {}

    @property
    def needs(self) -> list[str]:
        """The columns of the pool that it reads."""
        maker = searches[self.method]
        wanted = list(maker.wants(defaults_of(self.method) | dict(self.options)).proxies) if _pools(maker) else []
        own = [proxy.text for proxy in parse_objective(self.proxy).proxies if not is_looked_up(proxy)]
        return [*own, *(parse(text).text for text in wanted)]


def _pools(maker: Any) -> bool:
    return isinstance(maker, Pooling)


@dataclass(frozen=True)
class Arena:
    """Where contests are held."""

    pool: TableSource
    accuracies: TableSource
    batch: Batch

    @staticmethod
    def open(experiment: str, folder: Path) -> Arena:
        pool, table = find_pool(folder), NB201.find(folder)
        if pool is None or table is None:
            lacking = [file for file, path in ((POOL, pool), (NB201, table)) if path is None]
            raise missing(experiment, lacking, folder)
        space = spaces["nb201"]
        batch = batch_for(space, "pink", size=1)
        return Arena(TableSource.read(pool, space, pool=True), TableSource.read(table, space), batch)

    def lacks(self, contest: Contest) -> list[str]:
        return [column for column in contest.needs if column not in self.pool.table.columns]

    def search(self, contest: Contest, seed: int, progress: Progress | None = None) -> Outcome:
        objective = parse_objective(contest.proxy)
        task = Task(spaces["nb201"], objective.proxies, self.batch, sources=(self.pool, self.accuracies))
        with Store.open(":memory:") as store:
            return run_search(
                task,
                contest.method,
                contest.evaluations,
                seed=seed,
                objective=objective,
                options=contest.options,
                store=store,
                progress=progress,
            )

    def accuracy(self, arch: str, label: str) -> float | None:
        """What the table says of a network; None where it does not hold it."""
        score = self.accuracies.value(arch, ACCURACIES[label])
        return score.value if score.ok else None


def find_pool(folder: str | Path) -> Path | None:
    """The table of scores in the data folder, or the project's own."""
    return POOL.find(folder) or POOL.find(OWN)


def left_out(arena: Arena, contests: Sequence[Contest]) -> list[str]:
    """What cannot be searched with this pool, one sentence each."""
    lacking = {contest.label: arena.lacks(contest) for contest in contests}
    return [
        f"{label} is left out: the pool has no column {' and no '.join(columns)}."
        for label, columns in lacking.items()
        if columns
    ]


class Searches(Recipe):
    """An experiment whose rows are test accuracies of selected networks."""

    full: Trials = Trials(networks=10)
    quick: Trials = Trials(networks=3)
    needs = (NB201, POOL)
    contests: ClassVar[Sequence[Contest]]
    paper: ClassVar[Printed] = {}
    waiting: ClassVar[Sequence[str]] = ()
    """labels of the paper's that are measured elsewhere"""

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [
            Quoted(label, column, statistic, value)
            for label, figures in self.paper.items()
            for column, pair in zip(ACCURACIES, figures, strict=True)
            for statistic, value in zip((ACCURACY, DEVIATION), pair, strict=True)
            if value is not None
        ]

    def status(self, folder: str | Path = FOLDER) -> Status:
        return "ready" if NB201.find(folder) and find_pool(folder) else "needs data"

    def measure(self, work: Work) -> Found:
        arena = Arena.open(self.name, work.folder)
        work.begin(pool=arena.pool.name, table=arena.accuracies.name)
        held = [contest for contest in self.contests if not arena.lacks(contest)]
        seeds = range(work.seed, work.seed + work.settings.networks)
        rows: list[Row] = []
        values: dict[str, Sequence[float | None]] = {}
        for place, contest in enumerate(held):
            winners: list[str] = []
            seconds = []
            for seed in seeds:
                work.progress(place * len(seeds) + len(winners), len(held) * len(seeds))
                outcome = arena.search(contest, seed)
                winners.append(outcome.winner.text)
                seconds.append(outcome.seconds)
            found = {label: [arena.accuracy(arch, label) for arch in winners] for label in ACCURACIES}
            rows += self._rows(contest.label, found, work.seed)
            rows.append(Row("nb201", contest.label, "one search", SECONDS, estimate(seconds, seed=work.seed), 0))
            values[contest.label] = found["C10"]
        work.progress(len(held) * len(seeds), len(held) * len(seeds))
        about = f"scores of {arena.pool.name}, accuracies of {arena.accuracies.name}"
        sample = Sample("nb201", [], {}, values, dict.fromkeys(values, about), {})
        more = [f"{label} is not measured here." for label in self.waiting]
        return Found(rows, {"nb201": sample}, [*left_out(arena, self.contests), *more])

    def _rows(self, label: str, found: Mapping[str, Sequence[float | None]], seed: int) -> list[Row]:
        printed = {(figure.x, figure.y, figure.statistic): figure.value for figure in self.quoted}
        rows = []
        for column, accuracies in found.items():
            known = [value for value in accuracies if value is not None]
            for statistic in (ACCURACY, DEVIATION):
                figure = estimate(known, statistic, seed) if len(known) > 1 else None
                why = "" if figure is not None else "the table holds fewer than two of the winners"
                paper = printed.get((label, column, statistic))
                unheld = len(accuracies) - len(known)
                rows.append(Row("nb201", label, column, statistic, figure, unheld, paper, why))
        return rows


def estimate(values: Sequence[float], statistic: str = ACCURACY, seed: int = 0) -> Estimate:
    """Mean or standard deviation over searches, with a 95 % percentile interval."""
    numbers = np.array(values, np.float64)
    drawn = numbers[np.random.default_rng(seed).integers(len(numbers), size=(RESAMPLES, len(numbers)))]
    found, resampled = (
        (numbers.std(ddof=1), drawn.std(axis=1, ddof=1))
        if statistic == DEVIATION
        else (numbers.mean(), drawn.mean(axis=1))
    )
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Estimate(float(found), float(low), float(high), len(numbers))
