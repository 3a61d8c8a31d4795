r"""Several scores of each network turned into one, for the set of networks at hand.

    rank       sum_k log(rank_k / N)          AZ-NAS; the best network has rank N
    mean_rank  mean_k rank_k
    te_rank    sum_k rank_k, equal scores sharing the same rank and no gaps, as TE-NAS compares candidates
    harmonic   2ab / (a + b) of two scores, each network by itself, as in Dextr's Table 4

The first three depend on which networks are compared: they are computed anew for every set, and mean nothing for one
network alone. A network that lacks one of the scores gets none.

Lee, Ham. AZ-NAS. CVPR 2024. arXiv:2403.19232; Chen, Gong, Wang. TE-NAS. ICLR 2021. arXiv:2102.11535
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Merits = Sequence[Sequence[float | None]]
"""for each network, the merit (higher is better) of each of its scores, None where it has none"""


def _shared(ascending: Floats) -> Floats:
    """Ranks from 1 of values in ascending order; equals share their mean rank."""
    ranks = np.arange(1.0, len(ascending) + 1)
    tied = np.flatnonzero(ascending[1:] == ascending[:-1])  # each equals the next one
    first = tied[np.diff(tied, prepend=-2) > 1]  # of each group of equals
    last = tied[np.diff(tied, append=len(ascending) + 1) > 1] + 1
    times = last - first + 1
    inside = np.arange(times.sum()) - np.repeat(times.cumsum() - times, times)
    ranks[np.repeat(first, times) + inside] = np.repeat((first + last) / 2 + 1, times)
    return ranks


def _dense(ascending: Floats) -> Floats:
    """The same without gaps: equals share one rank, and the next ones have the next."""
    return np.concatenate([[1.0], 1 + np.cumsum(ascending[1:] != ascending[:-1])])[: len(ascending)]


METHODS: dict[str, Callable[[Floats], Floats]] = {
    "rank": lambda ascending: np.log(_shared(ascending) / len(ascending)),
    "mean_rank": _shared,
    "te_rank": _dense,
}
"""what a score adds to the merit of each network, the networks in ascending order of that score"""


class Ranking:
    """A set of networks that grows: each score is kept in ascending order, and more of them are merged, not sorted."""

    def __init__(self, method: str, scores: int) -> None:
        self.method, self.networks = method, 0
        self._ascending: list[Floats] = [np.empty(0) for _ in range(scores)]
        self._places = [np.empty(0, np.intp) for _ in range(scores)]
        """by score, in its order: which networks these are, of those that have all scores"""

    def add(self, rows: Floats) -> None:
        """More networks [networks, scores], nan where there is no score."""
        whole = np.flatnonzero(~np.isnan(rows).any(axis=1))
        for k, column in enumerate(rows[whole].T):
            order = np.argsort(column)
            at = np.searchsorted(self._ascending[k], column[order]) + np.arange(len(order))
            self._ascending[k] = _merged(self._ascending[k], column[order], at)
            self._places[k] = _merged(self._places[k], self.networks + whole[order], at)
        self.networks += len(rows)

    @property
    def merits(self) -> Floats:
        """Of all networks so far among each other, higher is better; nan where one lacks a score."""
        total = np.zeros(self.networks)
        for ascending, places in zip(self._ascending, self._places, strict=True):
            of_score = np.full(self.networks, np.nan)
            of_score[places] = METHODS[self.method](ascending)
            total += of_score
        return total / len(self._places) if self.method == "mean_rank" else total


def _merged(old: Any, new: Any, at: NDArray[np.intp]) -> Any:
    """Both in one array, in which the new ones stand at these places."""
    found = np.empty(len(old) + len(new), old.dtype)
    rest = np.ones(len(found), bool)
    rest[at] = False
    found[at], found[rest] = new, old
    return found


def combined(method: str, merits: Merits) -> list[float | None]:
    """One merit for each network, from the ranks of its scores among the networks that have all of them."""
    rows = np.array([[np.nan if value is None else value for value in row] for row in merits], np.float64)
    return [None if np.isnan(value) else float(value) for value in combined_rows(method, rows)] if len(rows) else []


def combined_rows(method: str, rows: Floats) -> Floats:
    """The same for rows of numbers [networks, scores], nan where there is none."""
    ranking = Ranking(method, rows.shape[1])
    ranking.add(rows)
    return ranking.merits


def harmonic(merits: Merits) -> list[float | None]:
    """The harmonic mean of each network's scores; none where one of them is missing or not positive."""
    positive = ([value for value in row if value is not None and value > 0] for row in merits)
    return [
        len(row) / sum(1 / value for value in kept) if len(kept) == len(row) else None
        for row, kept in zip(merits, positive, strict=True)
    ]
