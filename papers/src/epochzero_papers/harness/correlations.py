"""Experiments on how well proxies order the networks of benchmarks: one runner for every such table.

A recipe names the columns of the paper's table (`targets`) and, for each proxy, the figures in them. Networks are drawn
at random from the benchmark's table, distinct, the same for all repeats; each repeat draws weights and images anew, and
the figure is the mean over the repeats in which some network has a score. Correlations are signed so that a positive
one means that the proxy is right in the direction it declares. Networks without a score are left out of their proxy's
figures, and counted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epochzero.engine.space_networks import batch_for
from epochzero.evaluate.figures import merits_of
from epochzero.objectives.objective import Objective, members, parse_objective
from epochzero.registry import spaces
from epochzero.stats import proxy_quality
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.types import Origin, Score
from epochzero_papers.harness.base import REPEAT, Measurement, Quoted, Recipe, Row, Sample, Settings, Status, Work
from epochzero_papers.harness.files import CIFAR10, CIFAR100, FOLDER, IMAGENET16, NB101, NB201, File, missing
from epochzero_papers.harness.score_pairs import reasons
from epochzero_papers.harness.scoring import Job, NotScoredError, Scores, nothing_recalled, recalled, score_all

Figures = Mapping[str, Sequence[float | None]]
"""by proxy, one figure for each target; None where the paper has none"""
Merits = Mapping[str, Sequence[Sequence[Score]]]
"""by proxy, for each repeat and network; higher is better"""


@dataclass(frozen=True)
class Extent(Settings):
    """The part of a table that is measured."""

    spaces: tuple[str, ...] = ()
    """the targets of these spaces alone; all if empty"""


@dataclass(frozen=True)
class Target:
    """One column of a paper's table: the accuracies, and the images that proxies see."""

    label: str
    space: str
    table: File
    column: str
    images: tuple[File, ...] = (CIFAR10,)
    """kinds of images; the first that is in the folder is used"""
    init: str = "default"

    def source(self, work: Work) -> str | Path | None:
        """Returns the first file of images that is in the folder."""
        found = (file.find(work.folder) for file in self.images)
        return work.data if work.data is not None else next(filter(None, found), None)

    def lacks(self, folder: str | Path) -> list[File]:
        """Returns the missing files; of several kinds of images, the one that serves other targets too."""
        table = [] if self.table.find(folder) else [self.table]
        return table + ([] if any(file.find(folder) for file in self.images) else [self.images[-1]])


NB101_C10 = Target("NB101", "nb101", NB101, "test_acc_108ep")
NB201_C10 = Target("NB201-C10", "nb201", NB201, "cifar10_test")
NB201_C100 = Target("NB201-C100", "nb201", NB201, "cifar100_test", (CIFAR100, CIFAR10))
NB201_IN16 = Target("NB201-IN16", "nb201", NB201, "imagenet16_test", (IMAGENET16, CIFAR10))


@dataclass(frozen=True)
class Group:
    """Targets whose networks are scored together."""

    name: str
    targets: Sequence[Target]
    images: str | Path
    job: Job
    truth: Mapping[str, NDArray[np.float64]]
    """by label, in the order of the job's networks"""


class Correlations(Recipe):
    """An experiment whose rows are rank correlations of proxies with known accuracies."""

    full: Extent = Extent(networks=1000, repeats=3)
    quick: Extent = Extent(networks=8, batch_size=16, spaces=("nb201",))
    takes_scores = True
    targets: Sequence[Target]
    spearman: ClassVar[Figures]
    kendall: ClassVar[Figures] = {}
    unmeasured: Sequence[str] = ()
    """other parts of the paper's table, a sentence each"""

    @property
    def needs(self) -> Sequence[File]:  # type: ignore[override]
        return list(dict.fromkeys(file for target in self.targets for file in (target.table, *target.images)))

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [
            Quoted(proxy, target.label, statistic, value)
            for statistic, figures in self._figures.items()
            for proxy, values in figures.items()
            for target, value in zip(self.targets, values, strict=True)
            if value is not None
        ]

    @property
    def _figures(self) -> dict[str, Figures]:
        return {"spearman": self.spearman, "kendall": self.kendall} if self.kendall else {"spearman": self.spearman}

    def status(self, folder: str | Path = FOLDER) -> Status:
        lacking = [bool(target.lacks(folder)) for target in self.targets]
        return "needs data" if all(lacking) else "part" if any(lacking) else "ready"

    def sampled(
        self, target: Target, table: AccuracyTable, networks: int, seed: int, among: Container[str] | None = None
    ) -> tuple[list[Any], list[int]]:
        """Returns networks of the space, drawn from `among` if given, and their rows in the table."""
        space = spaces[target.space]
        if among is None:
            rows = table.sample(min(networks, len(table)), seed)
            return [space.parse(table.archs[row]) for row in rows], rows
        drawn = ((space.parse(table.archs[row]), row) for row in table.sample(len(table), seed))
        chosen = list(islice(((arch, row) for arch, row in drawn if space.text(arch) in among), networks))
        return [arch for arch, _ in chosen], [row for _, row in chosen]

    @property
    def objectives(self) -> Sequence[Objective]:
        """The proxies and combinations that are scored."""
        return [parse_objective(text) for text in self.spearman]

    def merits(self, work: Work, groups: Sequence[Group]) -> Iterator[tuple[Merits, list[str]]]:
        """Yields the merits of each group by the names in `spearman`, with a sentence about each repeat's data."""
        for group, found in zip(groups, score_all(work, [group.job for group in groups]), strict=True):
            merits = {text: [as_scores(parse_objective(text), scores) for scores in found] for text in self.spearman}
            yield merits, [task.batch.about for task in group.job.tasks]

    def measure(self, work: Work) -> Measurement:
        groups, left_out = self._groups(work)
        rows: list[Row] = []
        samples: dict[str, Sample] = {}
        for group, (merits, abouts) in zip(groups, self.merits(work, groups), strict=True):
            rows += self._rows(group, merits, work.seed)
            samples[group.name] = _sample(group, merits, abouts)
            more = self.beside(work, group, merits)
            rows, samples, left_out = [*rows, *more.rows], samples | dict(more.samples), [*left_out, *more.left_out]
        return Measurement(rows, samples, [*left_out, *self.unmeasured])

    def beside(self, work: Work, group: Group, merits: Merits) -> Measurement:
        """Returns figures of these networks other than rank correlations."""
        return Measurement([], {})

    def _groups(self, work: Work) -> tuple[list[Group], list[str]]:
        """Returns the groups that the data at hand allow, and sentences about the others."""
        together: dict[tuple[str, Path, str | Path, str], list[Target]] = {}
        lacking: dict[str, list[File]] = {}
        wanted = work.settings.spaces or [target.space for target in self.targets]
        for target in (target for target in self.targets if target.space in wanted):
            table, images = target.table.find(work.folder), target.source(work)
            if table is None or images is None:
                files = target.lacks(work.folder) if work.data is None else [target.table]
                lacking[target.label] = files
            else:
                together.setdefault((target.space, table, images, target.init), []).append(target)
        if not together:
            better = [file for target in self.targets if target.label in lacking for file in target.images[:-1]]
            optional = [file for file in better if work.data is None and not file.find(work.folder)]
            first, *instead = lacking.values()
            raise missing(self.name, first, work.folder, instead=instead, optional=optional)
        groups, unscored = [], []
        for (_, table, images, _), targets in together.items():
            try:
                group, notes = self._group(work, targets, table, images)
            except NotScoredError as reason:
                unscored.append(f"{', '.join(target.label for target in targets)}: left out, {reason}.")
            else:
                groups.append(group)
                unscored += notes
        if not groups:
            raise nothing_recalled(self.name, unscored)
        left_out = unscored + [
            f"{label} is left out: it needs {' and '.join(file.request for file in files)} in '{work.folder}'."
            for label, files in lacking.items()
        ]
        unasked = [target.label for target in self.targets if target.space not in wanted]
        return groups, left_out + ([f"{', '.join(unasked)}: left out of this small form."] if unasked else [])

    def _group(self, work: Work, targets: Sequence[Target], table: Path, images: str | Path) -> tuple[Group, list[str]]:
        """Returns targets that share networks and images, and sentences about given scores."""
        settings, first = work.settings, targets[0]
        truths = AccuracyTable.read(table)
        tasks, notes, among = [], [], None
        for seed in range(work.seed, work.seed + settings.repeats):
            batch = batch_for(spaces[first.space], images, size=settings.batch_size, seed=seed)
            proxies = members(self.objectives)
            tasks.append(Task(spaces[first.space], proxies, batch, Origin(first.init, seed), work.device))
        if work.recalls:
            known, answered = recalled(work, tasks)
            among = frozenset(known)
            if len(answered) < len(tasks):
                notes = [f"{first.label}: the given scores are of {len(answered)} of {len(tasks)} repeats."]
            tasks = answered
        archs, rows = self.sampled(first, truths, settings.networks, work.seed, among)
        start = "" if first.init == "default" else f", {first.init}"
        name = f"{first.space} on {Path(images).name.split('.')[0]}{start}"
        truth = {target.label: truths.column(target.column)[rows] for target in targets}
        return Group(name, targets, images, Job(archs, tasks), truth), notes

    def _rows(self, group: Group, merits: Merits, seed: int) -> list[Row]:
        rows = []
        place = {target.label: i for i, target in enumerate(self.targets)}
        for name, scores in merits.items():
            known = [repeat for repeat in scores if any(score.ok for score in repeat)] or scores
            for label, truth in group.truth.items():
                quality = proxy_quality(known, truth, True, seed=seed)
                for statistic, figures in self._figures.items():
                    printed = figures[name][place[label]] if name in figures else None
                    figure = quality.figures[statistic]
                    rows.append(
                        Row(group.name, name, label, statistic, figure.estimate, quality.unscored, printed, figure.why)
                    )
        return rows


def as_scores(objective: Objective, scores: Sequence[Scores]) -> list[Score]:
    """Returns each network's merit, higher is better, or the reason why it has none."""
    return merits_of(objective, {name: [one[name] for one in scores] for name in scores[0]})


def _sample(group: Group, merits: Merits, abouts: Sequence[str]) -> Sample:
    """Returns merits by column; the names of later repeats end with their number."""
    columns: dict[str, tuple[str, Sequence[Score], str]] = {}
    for text, repeats in merits.items():
        for repeat, (scores, about) in enumerate(zip(repeats, abouts, strict=True), start=1):
            columns[text if repeat == 1 else f"{text}{REPEAT}{repeat}"] = (text, scores, about)
    known = {target.label: target.column for target in group.targets}
    return Sample(
        space=group.targets[0].space,
        archs=group.job.texts,
        columns={name: text for name, (text, _, _) in columns.items()} | known,
        values={name: [one.value if one.ok else None for one in scores] for name, (_, scores, _) in columns.items()}
        | {label: truth.tolist() for label, truth in group.truth.items()},
        data={name: about for name, (_, _, about) in columns.items()},
        unscored={name: reasons(scores) for name, (_, scores, _) in columns.items()},
    )
