"""Which networks of a report are drawn: those in its cards, and those that people are likely to point at in a chart."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from epochzero.report.candidates import Candidates
from epochzero.report.judgement import Judgement
from epochzero.report.networks import Networks
from epochzero.report.statements import corners

SHOWN = 5
"""networks in the cards of a search"""
HOVERED, SECONDS = 60, 4.0
"""most further networks that are drawn, and the time for it"""


@dataclass
class Drawn:
    """The drawings of a run's networks; a live report keeps them."""

    networks: Networks
    candidates: Candidates
    pictures: dict[tuple[str, str], str]

    def cards(self, judgement: Judgement) -> list[dict[str, Any]]:
        """The members of an ensemble; best, knee and cheap end of a front; or the first networks."""
        roles = {one["network"]: one["role"] for one in corners(self.candidates, judgement)}
        places = list(roles) or judgement.order[: max(SHOWN, len(judgement.members))]
        return [{"network": at, "svg": self._svg(at), "role": roles.get(at, "")} for at in places]

    def hovered(self, judgement: Judgement) -> list[dict[str, Any]]:
        """The drawings of a front, of the best so far and of the fronts of score and cost, as far as time allows."""
        end = time.monotonic() + SECONDS
        found: list[dict[str, Any]] = []
        for at in dict.fromkeys([*judgement.order[:SHOWN], *judgement.front, *_edges(self.candidates, judgement)]):
            if len(found) == HOVERED or time.monotonic() > end:
                break
            if svg := self._svg(at):
                found.append({"network": at, "svg": svg})
        return found

    def _svg(self, at: int) -> str:
        key = (self.candidates.spaces[at], self.candidates.archs[at])
        if key not in self.pictures:
            self.pictures[key] = self.networks.drawing(*key)
        return self.pictures[key]


def _edges(candidates: Candidates, judgement: Judgement) -> Iterator[int]:
    """Networks better than all that are cheaper, the best first, then those better than all before them."""
    column = candidates.columns.get(judgement.by)
    if column is None or not judgement.curves:
        return
    known = np.flatnonzero(~np.isnan(column.values))
    for cost in candidates.of_kind("cost"):
        cheap = known[np.lexsort((-column.merits[known], cost.values[known]))]
        yield from reversed(list(rising(cheap[~np.isnan(cost.values[cheap])].tolist(), column.merits)))
    yield from reversed(list(rising(known.tolist(), column.merits)))


def rising(places: Iterable[int], merits: Any) -> Iterator[int]:
    """Those that are better than all before them."""
    best = -np.inf
    for at in places:
        if merits[at] > best:
            best = merits[at]
            yield at
