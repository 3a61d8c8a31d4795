"""Experiments that score random networks in several ways and correlate the scores.

A recipe names the measurements (`columns`) and the pairs that the paper compares (`pairs`); this module samples, scores
through the store and correlates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.engine import Proxy
from epochzero.errors import DataError, DegenerateError
from epochzero.registry import searches, spaces
from epochzero.stats import Correlation, kendall, pearson, spearman
from epochzero.study.task import Task
from epochzero.types import Origin, Score
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Status, Work
from epochzero_papers.harness.files import CIFAR10, FOLDER, missing
from epochzero_papers.harness.scoring import Job, NotScoredError, Scores, nothing_recalled, recalled, score_all

S = TypeVar("S", bound=Settings)
Load = Callable[[int], Batch]
"""a number of samples to a batch of them"""

STATISTICS: dict[str, Callable[..., Correlation]] = {"pearson": pearson, "spearman": spearman, "kendall": kendall}


@dataclass(frozen=True)
class Column:
    """A proxy on a batch, and the paper's transformation of its value."""

    name: str
    proxy: Proxy
    batch: Batch
    shown: Callable[[float], float] = float


class Pair(NamedTuple):
    """Two columns that the paper compares, and its figures by statistic and search space."""

    x: str
    y: str
    paper: Mapping[str, Mapping[str, float]]


class ScorePairs(Recipe, Generic[S]):
    """An experiment whose rows are correlations between columns of scores."""

    spaces: ClassVar[Mapping[str, str]] = {"nb201": "nb201"}
    """the paper's name of each search space, and ours"""
    full: S
    quick: S
    noise = True
    """noise can replace missing images"""
    needs = (CIFAR10,)
    takes_scores = True

    @abstractmethod
    def columns(self, settings: S, load: Load, seed: int) -> Sequence[Column]:
        """Returns the measurements of every network."""

    @abstractmethod
    def pairs(self, settings: S) -> Sequence[Pair]:
        """Returns the columns that are compared."""

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [
            Quoted(f"{space}: {pair.x}", pair.y, statistic, value)
            for pair in self.pairs(self.full)
            for statistic, printed in pair.paper.items()
            for space, value in printed.items()
        ]

    def status(self, folder: str | Path = FOLDER) -> Status:
        return "ready" if self.noise else super().status(folder)

    def measure(self, work: Work) -> Measurement:
        """Score distinct random networks, and correlate."""
        settings: S = work.settings
        columns = self.columns(settings, partial(_load, self._source(work), work.seed), work.seed)
        batches = {column.batch.id: column.batch for column in columns}
        jobs, left_out = {}, []
        for label, name in self.spaces.items():
            space = spaces[name]
            origin = Origin(seed=work.seed)
            tasks = [Task(space, _proxies(columns, batch), batch, origin, work.device) for batch in batches.values()]
            if not work.recalls:
                jobs[label] = Job(searches["random"](space, work.seed).ask(settings.networks), tasks)
                continue
            try:
                known = recalled(work, tasks)[0][: settings.networks]
                jobs[label] = Job([space.parse(text) for text in known], tasks)
            except NotScoredError as reason:
                left_out.append(f"{label} is left out: {reason}.")
        if not jobs:
            raise nothing_recalled(self.name, left_out)
        scores = dict(zip(jobs, score_all(work, list(jobs.values())), strict=True))
        samples = {
            label: _sample(self.spaces[label], job, columns, dict(zip(batches, scores[label], strict=True)))
            for label, job in jobs.items()
        }
        rows = [
            _row(pair, statistic, label, samples[label], work.seed)
            for label in samples
            for pair in self.pairs(settings)
            for statistic in pair.paper
        ]
        return Measurement(rows, samples, left_out)

    def _source(self, work: Work) -> str | Path:
        if work.data is None:
            there = CIFAR10.find(work.folder)
            if there is None and not self.noise:
                raise missing(self.name, [CIFAR10], work.folder)
            return there or "pink"
        if not self.noise and work.data in data_.NOISE:
            raise DataError(
                f"{self.name} compares with random data and labels, and '{work.data}' is random itself: "
                "give --data FILE with real images and labels."
            )
        return work.data


def _load(source: str | Path, seed: int, size: int) -> Batch:
    return data_.load(source, size=size, seed=seed)


def _proxies(columns: Sequence[Column], batch: Batch) -> list[Proxy]:
    """Returns the proxies that are measured on this batch, without repeats."""
    return list({column.proxy.text: column.proxy for column in columns if column.batch.id == batch.id}.values())


def _sample(space: str, job: Job, columns: Sequence[Column], results: Mapping[str, Sequence[Scores]]) -> Sample:
    scores: dict[str, list[Score]] = {
        column.name: [one[column.proxy.text] for one in results[column.batch.id]] for column in columns
    }
    return Sample(
        space=space,
        archs=job.texts,
        columns={column.name: column.proxy.text for column in columns},
        values={
            column.name: [column.shown(score.value) if score.ok else None for score in scores[column.name]]
            for column in columns
        },
        data={column.name: column.batch.about for column in columns},
        unscored={name: reasons(of_column) for name, of_column in scores.items()},
    )


def reasons(scores: Sequence[Score]) -> dict[str, int]:
    """Returns the reasons for missing scores, with their counts."""
    return dict(Counter(score.why for score in scores if not score.ok))


def _row(pair: Pair, statistic: str, label: str, sample: Sample, seed: int) -> Row:
    points = zip(sample.values[pair.x], sample.values[pair.y], strict=True)
    both = [(x, y) for x, y in points if x is not None and y is not None]
    left_out = len(sample.archs) - len(both)
    row = partial(Row, label, pair.x, pair.y, statistic, unscored=left_out, paper=pair.paper[statistic].get(label))
    try:
        return row(found=STATISTICS[statistic]([x for x, _ in both], [y for _, y in both], seed=seed))
    except DegenerateError as reason:
        return row(found=None, why=str(reason))
