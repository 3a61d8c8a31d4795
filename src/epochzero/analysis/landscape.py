r"""The loss on a plane through a network's weights.

    s(a, b) = mean over samples of f(w + a d_1 + b d_2)

d_1 and d_2 are random directions, normalised filter by filter, so that a step is as large for every filter as the
filter itself and networks can be compared: a random d_k of N(0, 1), times ||w_f|| / ||d_f|| for each filter f, a row of
a weight's first axis. Weights of one axis, biases and norms, do not move. Batch norms use their running statistics, or
those of the batch under `train`, for a network that was never trained.

Li, Xu, Taylor, Studer, Goldstein. Visualizing the loss landscape of neural nets. NeurIPS 2018. arXiv:1712.09913
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from epochzero.analysis.subjects import Subject, Weights
from epochzero.errors import UserError
from epochzero.progress import Progress, silent

RISE = 1.0
"""largest rise of the loss in the region near the weights"""


@dataclass(frozen=True)
class Plane:
    """Values on a plane."""

    axis: Sequence[float]
    """coordinates along both directions, from -span to span"""
    values: Sequence[Sequence[Sequence[float]]]
    """[P][a][b]"""

    @property
    def near(self) -> float:
        """The share of the first network's plane where the value exceeds that at the centre by at most `RISE`."""
        limit = self.middle + RISE
        return sum(value <= limit for row in self.values[0] for value in row) / len(self.axis) ** 2

    @property
    def steepest(self) -> float:
        """The largest finite slope between two neighbouring points of the first network."""
        rows, step = self.values[0], self.axis[1] - self.axis[0]
        pairs = [(a, b) for row in rows for a, b in pairwise(row)]
        pairs += [(a, b) for one, two in pairwise(rows) for a, b in zip(one, two, strict=True)]
        slopes = [abs(a - b) / step for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        return max(slopes, default=math.nan)

    @property
    def middle(self) -> float:
        """The first network's value at the centre."""
        return self.values[0][len(self.axis) // 2][len(self.axis) // 2]


def axis_of(span: float, across: int) -> list[float]:
    """Evenly spaced coordinates, symmetric around 0."""
    if across < 3 or across % 2 == 0 or not 0 < span < math.inf:
        raise UserError(
            f"A plane has an odd number of points to a side, at least 3, and a positive span; not {across}, {span:g}."
        )
    half = across // 2
    return [span * i / half for i in range(-half, half + 1)]


def directions(subject: Subject, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Two random directions, normalised filter by filter."""
    one, two = (
        {name: filter_normalised(drawn, subject.weights[name]) for name, drawn in subject.drawn(seed, which).items()}
        for which in (0, 1)
    )
    return one, two


def filter_normalised(direction: Tensor, weight: Tensor) -> Tensor:
    """The direction with the length of the weight, row by row of its first axis; zeros for weights of one axis."""
    if weight.dim() < 2:
        return torch.zeros_like(direction)
    axes = list(range(1, weight.dim()))
    lengths: Tensor = torch.linalg.vector_norm(direction, dim=axes, keepdim=True)
    wanted: Tensor = torch.linalg.vector_norm(weight, dim=axes, keepdim=True)
    return direction * (wanted / lengths.clamp(min=torch.finfo(lengths.dtype).tiny))


def points(subject: Subject, axis: Sequence[float], seed: int) -> Iterator[dict[str, Tensor]]:
    """The weights at each point of the plane, row by row."""
    one, two = directions(subject, seed)
    for a in axis:
        for b in axis:
            yield subject.weights | {name: subject.weights[name] + a * one[name] + b * two[name] for name in one}


def on_plane(
    subject: Subject, axis: Sequence[float], seed: int, value: Callable[[Weights], Tensor], progress: Progress = silent
) -> Plane:
    """The plane of a value [P] of the weights: of `subject.losses` for the loss landscape."""
    values = []
    for weights in points(subject, axis, seed):
        values.append(value(weights))
        progress(len(values), len(axis) ** 2, "")
    by_network: Tensor = torch.stack(values, 1).double().cpu()  # [P, points]
    return Plane(axis, by_network.view(subject.count, len(axis), len(axis)).tolist())
