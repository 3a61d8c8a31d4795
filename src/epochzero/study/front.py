"""The front of a search for several things at once: the networks that no other one it looked at beats in all of them.

A network that lacks one of the scores is counted and left out. Networks with the same scores in everything stay side by
side. The front is that of all networks that were looked at, not of the last population.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from epochzero.objectives.goals import Goals
from epochzero.objectives.objective import Objective
from epochzero.study.methods.base import Floats
from epochzero.study.methods.dominance import dominates
from epochzero.study.result import Candidate, Outcome
from epochzero.study.task import Task
from epochzero.types import Score


class Member(NamedTuple):
    """A network of the front, with its scores in the order of the goals."""

    arch: Any
    text: str
    values: tuple[float, ...]


class Front(Outcome):
    """What a search for several things found."""

    def __init__(self, task: Task, goals: Goals) -> None:
        super().__init__(task, Objective(goals.proxies))
        self.goals = goals
        self._members: list[Member] = []
        self._standing: Floats = np.empty((0, len(goals.goals)))
        """of the members"""
        self._values = array("d")

    @property
    def text(self) -> str:
        return self.goals.text

    @property
    def headline(self) -> str:
        return f"front of {len(self._members)}"

    @property
    def members(self) -> list[Member]:
        """The front, the best by the first goal first."""
        return sorted(self._members, key=lambda member: [-merit for merit in self.goals.merits(member.values)])

    @property
    def values(self) -> Floats:
        """The scores of all networks that have them, in the order of looking [networks, goals]."""
        return np.array(self._values, np.float64).reshape(-1, len(self.goals.goals))

    def tell(self, archs: Sequence[Any], scores: Sequence[Mapping[str, Score]]) -> tuple[Any, None]:
        """Count networks and keep the front; their merits, a tuple for each."""
        found = [self.goals.values(one) for one in scores]
        merits = [None if values is None else self.goals.merits(values) for values in found]
        new = []
        for arch, one, values in zip(archs, scores, found, strict=True):
            self._count(one, None if values is None else 0.0)
            if values is not None:
                self._values.extend(values)
                new.append(Member(arch, self.task.space.text(arch), values))
        self._join(new, np.array([merit for merit in merits if merit is not None], np.float64))
        return merits, None

    def _join(self, new: list[Member], rows: Floats) -> None:
        """Keep those of the front and of the new ones that none of the new ones and none of the front dominates."""
        if not new:
            return
        every = np.concatenate([self._standing, rows])
        beaten = np.asarray(dominates(rows, every).any(axis=0))
        beaten[len(self._standing) :] |= dominates(self._standing, rows).any(axis=0)
        kept = np.flatnonzero(~beaten)
        members = [*self._members, *new]
        self._members, self._standing = [members[i] for i in kept], every[kept]
        first = self._members[np.lexsort(-self._standing.T[::-1])[0]]
        self.best = Candidate(first.arch, first.text, Score(first.values[0]))

    def _why_not(self, scores: Mapping[str, Score]) -> str:
        return self.goals.why_not(scores)


def as_csv(front: Front, more: Mapping[str, Sequence[object]] = MappingProxyType({})) -> str:
    """One line for each network of the front, numbers in full, and more columns by name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arch", *(goal.proxy.text for goal in front.goals.goals), *more])
    for place, member in enumerate(front.members):
        writer.writerow([member.text, *member.values, *(column[place] for column in more.values())])
    return text.getvalue()
