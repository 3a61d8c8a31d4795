"""The shared part of the thesis' Tables 7.10 and 7.11: the tuned bound, with M and kappa measured in different ways.

mu and nu are tuned on the first half of the networks, with both measured as in Table 7.1 (see `guarantees.py`); every
figure is for the other half.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from epochzero.objectives.objective import Objective
from epochzero.study.task import Task
from epochzero_papers.harness.base import Work
from epochzero_papers.harness.correlations import NB201_C10, Correlations, Extent, Figures, Group, Merits
from epochzero_papers.harness.scoring import Job, score_all
from epochzero_papers.thesis.guarantees import METRICS, m_and_kappa, measures, merits_of_the_rest, tuned

Printed = Mapping[str, Sequence[float]]
"""by row of the table, figures by metric"""


class Ablation(Correlations):
    """A bound for each row and metric of the table."""

    full = Extent(networks=1000)
    targets = (NB201_C10,)

    @abstractmethod
    def usual(self, settings: Extent) -> int:
        """Returns the way in which both are measured for Table 7.1."""

    @abstractmethod
    def ways(self, settings: Extent) -> Mapping[str, tuple[int, int]]:
        """Returns the ways to measure M and kappa, by row."""

    @abstractmethod
    def task(self, task: Task, way: int, images: str, seed: int) -> Task:
        """Returns the task for another way to measure."""

    @property
    def objectives(self) -> Sequence[Objective]:
        return measures(METRICS)

    def merits(self, work: Work, groups: Sequence[Group]) -> Iterator[tuple[Merits, list[str]]]:
        (group,) = groups
        usual, rows = self.usual(work.settings), self.ways(work.settings)
        ways = list(dict.fromkeys([usual, *(way for pair in rows.values() for way in pair)]))
        repeats = [
            [self.task(task, way, str(group.images), work.seed + repeat) for way in ways]
            for repeat, task in enumerate(group.job.tasks)
        ]
        (scores_of,) = score_all(work, [Job(group.job.archs, [task for tasks in repeats for task in tasks])])
        scores = [
            dict(zip(ways, scores_of[first : first + len(ways)], strict=True))
            for first in range(0, len(scores_of), len(ways))
        ]
        truth = group.truth[NB201_C10.label]
        merits = {}
        for metric in METRICS:
            bound = tuned(*m_and_kappa(metric, scores[0][usual], scores[0][usual]), truth)
            for row, (of_m, of_kappa) in rows.items():
                merits[f"{row}, {metric}"] = [
                    merits_of_the_rest(bound, *m_and_kappa(metric, one[of_m], one[of_kappa])) for one in scores
                ]
        abouts = [" ".join(dict.fromkeys(task.batch.about for task in tasks)) for tasks in repeats]
        yield {name: merits[name] for name in self.spearman if name in merits}, abouts


def by_row(printed: Printed) -> Figures:
    """Returns figures [row][metric] as figures of one target by row and metric."""
    return {
        f"{row}, {metric}": (value,)
        for row, values in printed.items()
        for metric, value in zip(METRICS, values, strict=True)
    }
