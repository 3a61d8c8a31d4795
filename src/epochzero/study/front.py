"""The front of a search with several objectives: the networks that no other network beats in all of them.

A network that lacks one of the scores is left out. Networks with equal scores are all kept. The front is that of all
evaluated networks, not of the last population.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from epochzero.files import csv_text
from epochzero.frames import Framed
from epochzero.objectives.goals import Goals
from epochzero.study.methods.base import Floats
from epochzero.study.methods.dominance import dominates
from epochzero.types import Score


class Member(NamedTuple):
    """A network of the front, with its scores in the order of the goals."""

    arch: Any
    text: str
    values: tuple[float, ...]


class Front(Framed):
    """The networks that no other dominates."""

    def __init__(self, goals: Goals) -> None:
        self.goals = goals
        self._members: list[Member] = []
        self._merits: Floats = np.empty((0, len(goals.goals)))
        """of the members"""
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"<Front of {len(self)} networks by {self.goals.text}>"

    def table(self) -> dict[str, list[Any]]:
        """The columns arch and one per goal, the best by the first goal first."""
        members, names = self.members, [goal.proxy.text for goal in self.goals.goals]
        columns = {name: [member.values[i] for member in members] for i, name in enumerate(names)}
        return {"arch": [member.text for member in members], **columns}

    @property
    def members(self) -> list[Member]:
        """The networks, the best by the first goal first."""
        return sorted(self._members, key=lambda member: [-merit for merit in self.goals.merits(member.values)])

    @property
    def first(self) -> Member | None:
        """The best by the first goal."""
        return self._members[np.lexsort(-self._merits.T[::-1])[0]] if self._members else None

    @property
    def values(self) -> Floats:
        """The scores of all networks that have them, in the order of evaluation [networks, goals]."""
        return np.array(self._values, np.float64).reshape(-1, len(self.goals.goals))

    def tell(self, networks: Sequence[Member], scores: Sequence[Mapping[str, Score]]) -> list[tuple[float, ...] | None]:
        """Adds networks; returns their merits, a tuple each, None for one that lacks a score."""
        values = [self.goals.values(by_proxy) for by_proxy in scores]
        merits = [None if row is None else self.goals.merits(row) for row in values]
        new = [network._replace(values=row) for network, row in zip(networks, values, strict=True) if row is not None]
        if new:
            self._values.extend(value for member in new for value in member.values)
            self._join(new, np.array([merit for merit in merits if merit is not None], np.float64))
        return merits

    def _join(self, new: list[Member], rows: Floats) -> None:
        """Keeps the members and new networks that nothing dominates; old members do not dominate each other."""
        merits = np.concatenate([self._merits, rows])
        beaten = np.asarray(dominates(rows, merits).any(axis=0))
        beaten[len(self._merits) :] |= dominates(self._merits, rows).any(axis=0)
        kept = np.flatnonzero(~beaten)
        members = [*self._members, *new]
        self._members, self._merits = [members[i] for i in kept], merits[kept]


def as_csv(front: Front, more: Mapping[str, Sequence[object]] = MappingProxyType({})) -> str:
    """One line per network of the front, numbers in full, and more columns by name."""
    heads = ["arch", *(goal.proxy.text for goal in front.goals.goals), *more]
    rows = (
        [member.text, *member.values, *(column[place] for column in more.values())]
        for place, member in enumerate(front.members)
    )
    return csv_text(heads, rows)
