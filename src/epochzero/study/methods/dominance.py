r"""Pareto dominance among networks with several objectives, and the quality of a front.

Merits are rows [networks, objectives], higher is better in each.

    a dominates b     a >= b in every objective, and a > b in one
    front 0           those that nothing dominates; front k, those that only members of earlier fronts dominate
    crowding          sum over objectives of (merit of the next better - merit of the next worse) / (max - min) within
                      a front; infinite for the ends of the front in any objective that varies
    hypervolume       the volume of { z : reference <= z <= p for a point p }

Equal rows do not dominate each other. An objective that is the same for all members of a front adds nothing to
their crowding.

Deb, Pratap, Agarwal, Meyarivan. A fast and elitist multiobjective genetic algorithm: NSGA-II. IEEE TEC 2002;
Zitzler, Thiele. Multiobjective optimization using evolutionary algorithms. PPSN 1998 (hypervolume).
"""

from __future__ import annotations

from collections.abc import Sequence

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


def hypervolume(merits: Floats, reference: Sequence[float]) -> float:
    """The exact volume that the rows dominate beyond a reference, with 1, 2 or 3 objectives."""
    worst = np.asarray(reference, np.float64)
    merits = np.asarray(merits, np.float64).reshape(-1, len(worst))
    if len(worst) > 3:
        raise ValueError(f"The hypervolume is computed for at most 3 objectives, not {len(worst)}.")
    above = merits[(merits > worst).all(axis=1)] - worst
    if not len(above):
        return 0.0
    if len(worst) == 1:
        return float(above.max())
    return _area(above) if len(worst) == 2 else _volume(above)


def _area(points: Floats) -> float:
    """Of the union of the rectangles between the origin and each point."""
    ordered = points[np.argsort(-points[:, 0], kind="stable")]
    tallest = np.maximum.accumulate(ordered[:, 1])
    return float(np.sum(ordered[:, 0] * np.diff(tallest, prepend=0.0)))


def _volume(points: Floats) -> float:
    """Slice by slice from the top: between two heights the cut is the area of all points above."""
    ordered = points[np.argsort(-points[:, 2], kind="stable")]
    thickness = ordered[:, 2] - np.append(ordered[1:, 2], 0.0)
    front, volume = np.empty((0, 2)), 0.0
    for point, thick in zip(ordered[:, :2], thickness, strict=True):
        front = np.vstack([front, point])
        front = front[first_front(front)]
        volume += thick * _area(front)
    return float(volume)
