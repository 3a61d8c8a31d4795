r"""Pareto dominance among networks with several objectives.

Merits are rows [networks, objectives], higher is better in each.

    a dominates b     a >= b in every objective, and a > b in one
    front 0           those that nothing dominates; front k, those that only members of earlier fronts dominate
    crowding          sum over objectives of (merit of the next better - merit of the next worse) / (max - min) within
                      a front; infinite for the ends of the front in any objective that varies

Equal rows do not dominate each other. An objective that is the same for all members of a front adds nothing to
their crowding.

Deb, Pratap, Agarwal, Meyarivan. A fast and elitist multiobjective genetic algorithm: NSGA-II. IEEE TEC 2002
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epochzero.study.methods.base import Floats

Numbers = NDArray[np.intp]
FEW = 128
"""rows that are quicker compared each with each than in order"""


def dominates(merits: Floats, others: Floats) -> NDArray[np.bool_]:
    """A matrix [rows, others] that is true where a row dominates another."""
    rows = merits[:, None]
    return np.asarray((rows >= others).all(axis=2) & (rows > others).any(axis=2))


def first_front(merits: Floats) -> Numbers:
    """The rows that nothing dominates, in their order."""
    if len(merits) <= FEW:
        return np.flatnonzero(~dominates(merits, merits).any(axis=0))
    order = np.lexsort(-merits.T[::-1])  # by the first objective, then by the second, the best first
    left, front = order, []
    while len(left):  # what comes first is dominated by none that comes later, nor by any of the front
        best = merits[left[0]]
        same = (merits[left] == best).all(axis=1)
        front += left[same].tolist()
        left = left[(merits[left] > best).any(axis=1)]
    return np.sort(np.array(front, np.intp))


def fronts(merits: Floats) -> list[Numbers]:
    """All rows by front, the best front first; within a front in their order."""
    left, all_fronts = np.arange(len(merits)), []
    while len(left):
        chosen = first_front(merits[left])
        all_fronts.append(left[chosen])
        left = np.delete(left, chosen)
    return all_fronts


def crowding(merits: Floats) -> Floats:
    """The distance of each row of one front from its neighbours."""
    distance = np.zeros(len(merits))
    for column in merits.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        span = ordered[-1] - ordered[0] if len(ordered) else 0.0
        if span > 0:
            gaps = np.concatenate([[np.inf], np.diff(ordered) / span, [np.inf]])
            distance[order] += gaps[:-1] + gaps[1:]
    return distance


def ranked(merits: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Of each row, the number of its front, and its crowding in it."""
    rank, distance = np.zeros(len(merits), np.intp), np.zeros(len(merits))
    for number, front in enumerate(fronts(merits)):
        rank[front], distance[front] = number, crowding(merits[front])
    return rank, distance


def fittest(merits: Floats, size: int) -> Numbers:
    """The rows that survive: whole fronts, and of the one that does not fit the least crowded; the best first."""
    rank, distance = ranked(merits)
    return np.lexsort((np.arange(len(merits)), -distance, rank))[:size]
