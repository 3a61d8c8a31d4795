r"""The quality of a front: the volume that its networks dominate.

    hypervolume       the volume of { z : reference <= z <= p for a point p }

Merits are rows [networks, objectives], higher is better in each.

Zitzler, Thiele. Multiobjective optimization using evolutionary algorithms. PPSN 1998
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from epochzero.study.methods.base import Floats
from epochzero.study.methods.dominance import first_front


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
