"""Experiments that score random networks in several ways and ask how the ways are connected.

A recipe says what is measured (`columns`) and which of them the paper compares (`pairs`); sampling, scoring through
the store and correlating are here.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.engine import Proxy
from epochzero.errors import DataError, DegenerateError, UserError
from epochzero.experiments.base import Progress, Result, Row, Settings
from epochzero.registry import searches, spaces
from epochzero.run.task import Task
from epochzero.stats import Correlation, kendall, pearson, spearman
from epochzero.store import JSON, Run, Store, manifest
from epochzero.types import Origin, Score

S = TypeVar("S", bound=Settings)
Load = Callable[[int], Batch]
"""a batch of so many samples of the data at hand"""

STATISTICS: dict[str, Callable[..., Correlation]] = {"pearson": pearson, "spearman": spearman, "kendall": kendall}
CHUNK = 4
"""networks that are scored and stored at a time"""


@dataclass(frozen=True)
class Column:
    """One way to measure a network: a proxy on a batch, and what the paper makes of its value."""

    name: str
    proxy: Proxy
    batch: Batch
    shown: Callable[[float], float] = float


class Pair(NamedTuple):
    """Two columns that the paper compares, and its figures: statistic to search space to value."""

    x: str
    y: str
    paper: Mapping[str, Mapping[str, float]]


class Connections(ABC, Generic[S]):
    """An experiment whose rows are correlations between columns of scores."""

    name: str
    source: str
    space: str = "nb201"
    full: S
    quick: S
    noise = True
    """whether noise will do for data"""

    @abstractmethod
    def columns(self, settings: S, load: Load, seed: int) -> Sequence[Column]:
        """What is measured on every network."""

    @abstractmethod
    def pairs(self, settings: S) -> Sequence[Pair]:
        """What is compared."""

    @property
    def about(self) -> str:
        """The first line of the recipe's file."""
        return (inspect.getdoc(inspect.getmodule(type(self))) or "").split("\n", 1)[0]

    def run(
        self,
        settings: S | None = None,
        *,
        seed: int = 0,
        data: str | Path = "pink",
        device: str = "cpu",
        store: str | Path = ":memory:",
        progress: Progress | None = None,
    ) -> Result:
        """Score `settings.networks` random networks, each different, and correlate."""
        start = time.perf_counter()
        settings = settings or self.full
        if settings.networks < 3:
            raise UserError(f"A correlation needs at least 3 networks, not {settings.networks}.")
        if not self.noise and data in data_.NOISE:
            raise DataError(
                f"{self.name} compares with random data and labels, and '{data}' is random itself: "
                "give --data FILE with real images and labels."
            )
        columns = self.columns(settings, partial(_load, data, seed), seed)
        batches = {column.batch.id: column.batch for column in columns}
        identity: dict[str, JSON] = {
            "experiment": self.name,
            "settings": asdict(settings),
            "seed": seed,
            "batches": list(batches),
        }
        made = manifest(identity | {"device": device})
        space = spaces[self.space]
        archs = searches["random"](space, seed).ask(settings.networks)
        tasks = [Task(space, _proxies(columns, batch), batch, Origin(seed=seed), device) for batch in batches.values()]
        with Store.open(store) as opened:
            run = opened.begin_run("experiment", identity, made)
            scores = _scores(columns, tasks, archs, opened, run, progress)
            values = {
                column.name: [column.shown(score.value) if score.ok else None for score in scores[column.name]]
                for column in columns
            }
            rows = [
                self._row(pair, statistic, values, seed) for pair in self.pairs(settings) for statistic in pair.paper
            ]
            run.finish({f"{row.name} {row.statistic}": None if row.found is None else row.found.value for row in rows})
        return Result(
            experiment=self.name,
            about=self.about,
            source=self.source,
            space=self.space,
            rows=rows,
            settings=asdict(settings),
            seed=seed,
            data={column.name: column.batch.about for column in columns},
            columns={column.name: column.proxy.text for column in columns},
            archs=[space.text(arch) for arch in archs],
            values=values,
            unscored={
                name: dict(Counter(one.why for one in of_column if not one.ok)) for name, of_column in scores.items()
            },
            device=device,
            machine=_mapping(made["machine"]),
            versions=_mapping(made["versions"]),
            date=str(made["started"]),
            seconds=time.perf_counter() - start,
        )

    def _row(self, pair: Pair, statistic: str, values: Mapping[str, Sequence[float | None]], seed: int) -> Row:
        points = zip(values[pair.x], values[pair.y], strict=True)
        both = [(x, y) for x, y in points if x is not None and y is not None]
        paper = pair.paper[statistic]
        row = partial(Row, pair.x, pair.y, statistic, unscored=len(values[pair.x]) - len(both), paper=paper)
        try:
            found = STATISTICS[statistic]([x for x, _ in both], [y for _, y in both], seed=seed)
        except DegenerateError as reason:
            return row(found=None, why=str(reason))
        return row(found=found, difference=found.value - paper[self.space] if self.space in paper else None)


def _load(source: str | Path, seed: int, size: int) -> Batch:
    return data_.load(source, size=size, parts=1, seed=seed)


def _proxies(columns: Sequence[Column], batch: Batch) -> list[Proxy]:
    """Those that are measured on this batch, each once."""
    return list({column.proxy.text: column.proxy for column in columns if column.batch.id == batch.id}.values())


def _scores(
    columns: Sequence[Column],
    tasks: Sequence[Task],
    archs: Sequence[Any],
    store: Store,
    run: Run,
    progress: Progress | None,
) -> dict[str, list[Score]]:
    """By column, in the order of `archs`; what the store has is not computed."""
    scores: dict[str, list[Score]] = {column.name: [] for column in columns}
    tell = progress or (lambda done, total: None)
    for first in range(0, len(archs), CHUNK):
        tell(first, len(archs))
        some = archs[first : first + CHUNK]
        found = {task.batch.id: task.evaluate(some, store, run, first)[0] for task in tasks}
        for column in columns:
            scores[column.name] += [one[column.proxy.text] for one in found[column.batch.id]]
    tell(len(archs), len(archs))
    return scores


def _mapping(value: JSON) -> Mapping[str, Any]:
    assert isinstance(value, Mapping)
    return value
