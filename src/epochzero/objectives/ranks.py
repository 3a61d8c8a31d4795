r"""Combination of several scores of each network into one, over a set of networks.

    rank         sum_k log(rank_k / N)          AZ-NAS; the best network has rank N
    normal_rank  sum_k Phi^-1((rank_k - 1/2) / N)
    mean_rank    mean_k rank_k
    agreement    mean_k q_k - std_k(q_k) / sqrt(K), q_k = (rank_k - 1/2) / N: the mean less its standard error over
                 the K scores, so that of two networks with the same mean rank the one that they agree on is better
    shares       sum_k q_k
    te_rank      sum_k rank_k, with equal ranks for equal scores and no gaps, as TE-NAS compares candidates
    harmonic     2ab / (a + b) of two scores, for each network separately, as in Dextr's Table 4

All but the last depend on the set of networks: they are computed again for every set, and are not defined for a single
network. A network that lacks one of the scores gets no result. The sums may have weights, a score alternatives for
sets of networks that lack it, and its value less the mean may count in place of its rank.

Lee, Ham. AZ-NAS. CVPR 2024. arXiv:2403.19232; Chen, Gong, Wang. TE-NAS. ICLR 2021. arXiv:2102.11535
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Merits = Sequence[Sequence[float | None]]
"""For each network, the merit (higher is better) of each score, None if missing."""
NEARLY_ALL = 0.9
"""share of the networks with any score that an alternative has to have a score for"""


class Term(NamedTuple):
    """One summand of a combination."""

    weight: float
    columns: tuple[int, ...]
    """its score, and the alternatives for sets of networks that lack it"""
    by_value: bool = False
    """true if its score counts by its value; alternatives, and sets with infinite values, count by their ranks"""


def _shared(ascending: Floats) -> Floats:
    """Returns ranks from 1 of values in ascending order; equal values share their mean rank."""
    ranks = np.arange(1.0, len(ascending) + 1)
    tied = np.flatnonzero(ascending[1:] == ascending[:-1])  # each equals the next one
    first = tied[np.diff(tied, prepend=-2) > 1]  # of each group of equals
    last = tied[np.diff(tied, append=len(ascending) + 1) > 1] + 1
    times = last - first + 1
    inside = np.arange(times.sum()) - np.repeat(times.cumsum() - times, times)
    ranks[np.repeat(first, times) + inside] = np.repeat((first + last) / 2 + 1, times)
    return ranks


def _dense(ascending: Floats) -> Floats:
    """Returns ranks without gaps: equal values share one rank, and the next value has the next rank."""
    return np.concatenate([[1.0], 1 + np.cumsum(ascending[1:] != ascending[:-1])])[: len(ascending)]


def normal(shares: Floats) -> Floats:
    """Returns the standard normal quantiles of shares in (0, 1)."""
    return np.array([*map(NormalDist().inv_cdf, shares.tolist())])


METHODS: dict[str, Callable[[Floats], Floats]] = {
    "rank": lambda ascending: np.log(_shared(ascending) / len(ascending)),
    "normal_rank": lambda ascending: normal((_shared(ascending) - 0.5) / len(ascending)),
    "mean_rank": _shared,
    "te_rank": _dense,
    "agreement": lambda ascending: (_shared(ascending) - 0.5) / len(ascending),
    "shares": lambda ascending: (_shared(ascending) - 0.5) / len(ascending),
}
"""contribution of a score to each network's merit, for networks in ascending order of that score"""


def joined(method: str, parts: Floats, weights: Floats) -> Floats:
    """Returns the merits of networks from what each score contributes [scores, networks]."""
    total: Floats = weights @ parts
    if method == "mean_rank":
        return total / len(parts)
    if method != "agreement":
        return total
    whole, counted = max(float(weights.sum()), 1e-12), max(int((weights > 0).sum()), 1)
    mean = total / whole
    variance: Floats = weights @ (parts - mean) ** 2 / whole
    return np.asarray(mean - np.sqrt(variance / counted))


class Ranking:
    """A growing set of networks: each score is kept in ascending order, and new ones are merged, not sorted."""

    def __init__(self, method: str, scores: int, terms: Sequence[Term] | None = None) -> None:
        self.method, self.networks, self.scored = method, 0, 0
        self.terms = [Term(1.0, (k,)) for k in range(scores)] if terms is None else terms
        self._ascending: list[Floats] = [np.empty(0) for _ in range(scores)]
        self._places = [np.empty(0, np.intp) for _ in range(scores)]
        """by score, in its order: the numbers of the networks that have it"""

    def add(self, rows: Floats) -> None:
        """Adds networks [networks, scores], nan for a missing score."""
        for k, column in enumerate(rows.T):
            has = np.flatnonzero(~np.isnan(column))
            order = has[np.argsort(column[has])]
            at = np.searchsorted(self._ascending[k], column[order]) + np.arange(len(order))
            self._ascending[k] = _merged(self._ascending[k], column[order], at)
            self._places[k] = _merged(self._places[k], self.networks + order, at)
        self.networks += len(rows)
        self.scored += int((~np.isnan(rows)).any(axis=1).sum())

    @property
    def chosen(self) -> list[int]:
        """The score of each term: the first that nearly all networks have and that differs among them, else the last.

        Networks without any score, such as broken ones, do not count. All others are compared by the same scores.
        """
        applies = [
            len(of) >= NEARLY_ALL * self.scored and of[:1].tolist() != of[-1:].tolist() for of in self._ascending
        ]
        return [next((k for k in term.columns if applies[k]), term.columns[-1]) for term in self.terms]

    @property
    def merits(self) -> Floats:
        """The merits of all networks so far, higher is better; nan for a network that lacks a score."""
        chosen = self.chosen
        whole = np.bincount(np.concatenate([self._places[k] for k in chosen]), minlength=self.networks) == len(chosen)
        parts = np.full((len(chosen), self.networks), np.nan)
        for part, k, term in zip(parts, chosen, self.terms, strict=True):
            kept = whole[self._places[k]]
            values = self._ascending[k][kept]
            by_value = term.by_value and k == term.columns[0] and len(values) and np.isfinite(values).all()
            part[self._places[k][kept]] = values - values.mean() if by_value else METHODS[self.method](values)
        return joined(self.method, parts, np.array([term.weight for term in self.terms]))


def _merged(old: Any, new: Any, at: NDArray[np.intp]) -> Any:
    """Returns both in one array, with the new ones at these places."""
    both = np.empty(len(old) + len(new), old.dtype)
    rest = np.ones(len(both), bool)
    rest[at] = False
    both[at], both[rest] = new, old
    return both


def combined(method: str, merits: Merits) -> list[float | None]:
    """Returns one merit per network, from the ranks of its scores among the networks that have all scores."""
    rows = as_rows(merits)
    return as_merits(combined_rows(Ranking(method, rows.shape[1]), rows)) if len(rows) else []


def combined_rows(ranking: Ranking, rows: Floats) -> Floats:
    """Returns the merits of rows of numbers [networks, scores], nan for missing ones."""
    ranking.add(rows)
    return ranking.merits


def as_rows(merits: Merits) -> Floats:
    return np.array([[np.nan if value is None else value for value in row] for row in merits], np.float64)


def as_merits(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def harmonic(merits: Merits) -> list[float | None]:
    """Returns the harmonic mean of each network's scores; None if one of them is missing or not positive."""
    positive = ([value for value in row if value is not None and value > 0] for row in merits)
    return [
        len(row) / sum(1 / value for value in kept) if len(kept) == len(row) else None
        for row, kept in zip(merits, positive, strict=True)
    ]
