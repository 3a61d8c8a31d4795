r"""The value of one network alone: its percentile among reference networks, whose scores are frozen in reference.json.

Of reference networks r and their scores x_m:

    z_m(x)   = Phi^-1 of the share of reference networks below x, linear between them and beyond both ends
    t(x)     = sum_m weight_m z_m(x_m), or the agreement or the weighted sum of all Phi(z_m(x_m)), where the value
               less the mean takes the place of Phi(z_m) of a member that counts by its value
    value    = 100 * share of reference networks whose t is below; beyond them it approaches 0 and 100

The reference networks are random ones of the same space with the same input. For any other network they are those of
all spaces together. A search that needs values which stay compares with these directly. The score of a single network
is its percentile among networks of its size: there z_m is replaced by its residual from a linear regression on log
FLOPs, divided by the residuals' deviation, and FLOPs themselves do not count.

benchmarks/reference.py scores the networks and writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from epochzero.objectives.auto import Member, Version
from epochzero.objectives.ranks import Floats, joined, normal
from epochzero.types import Shape

FILE = Path(__file__).with_suffix(".json")
SIZE = "flops"
FORMS: dict[str, Callable[[Floats], Floats]] = {
    "normal_rank": lambda z: z,
    "agreement": np.vectorize(NormalDist().cdf, otypes=[float]),
    "shares": np.vectorize(NormalDist().cdf, otypes=[float]),
}
"""the contribution of z to a merit, by the version's method"""
END = 10
"""the slope beyond an end is that of the tenth of the networks next to it"""


@dataclass(frozen=True, eq=False)
class Reference:
    """Networks that others are compared with by a version of `auto`."""

    about: str
    """the meaning of a value"""
    about_size: str
    """the same where no score of the network but its size is known"""
    version: Version
    rows: Floats
    """merits of the reference networks by the version's scores [networks, scores], nan for missing ones"""
    of_size: bool = False
    pooled: bool = False
    """true for networks of several spaces"""
    _known: dict[tuple[int, ...], Callable[[Floats], float]] = field(default_factory=dict)

    def percentile(self, row: Floats) -> float:
        """Returns the value of a network from its merits by the version's scores; nan if it lacks one that counts."""
        columns = self._columns(row)
        if np.isnan(row[list(columns)]).any():
            return np.nan
        if columns not in self._known:
            self._known[columns] = self._fitted(columns)
        return self._known[columns](row)

    def meaning(self, row: Floats) -> str:
        """Says among which networks this network's value is a percentile."""
        about = self.about_size if set(self._columns(row)) == {self._size} else self.about
        sizes = self.rows[:, self._size]
        inside = np.isnan(row[self._size]) or np.nanmin(sizes) <= row[self._size] <= np.nanmax(sizes)
        return (
            about
            if inside
            else f"{about}, none of which is so {'small' if row[self._size] < np.nanmin(sizes) else 'large'}"
        )

    @property
    def _size(self) -> int:
        return self.version.scores.index(SIZE)

    def _first_of(self, member: Member) -> int:
        return self.version.scores.index(member.scores[0])

    @cached_property
    def _of_space(self) -> tuple[int, ...]:
        ranking = self.version.ranking()
        ranking.add(self.rows)
        return tuple(ranking.chosen)

    def _columns(self, row: Floats) -> tuple[int, ...]:
        """The score of each member: those of the space; among networks of many spaces, the first that there is."""
        if not self.pooled:
            return self._of_space
        terms = self.version.ranking().terms
        first = tuple(next((k for k in one.columns if not np.isnan(row[k])), one.columns[-1]) for one in terms)
        return first if len(self._whole(first)) else tuple(one.columns[-1] for one in terms)

    def _whole(self, columns: Sequence[int]) -> Floats:
        """The networks that have these scores, and FLOPs."""
        whole: Floats = self.rows[~np.isnan(self.rows[:, [*columns, self._size]]).any(axis=1)]
        return whole

    def _fitted(self, columns: Sequence[int]) -> Callable[[Floats], float]:
        """Returns the value of a network by these scores, one for each member."""
        rows = self._whole(columns)
        weights = np.array([member.weight for member in self.version.members])  # [members]
        deviations = np.ones(len(columns))
        pairs = list(zip(self.version.members, columns, strict=True))
        by_value = np.array([member.by_value and k == self._first_of(member) for member, k in pairs])  # [members]
        scales = [
            _centred(rows[:, k]) if own else _normal_scores(rows[:, k])
            for own, k in zip(by_value, columns, strict=True)
        ]

        def z(x: Floats) -> Floats:  # [..., scores] -> [..., members]
            return np.stack([scale(x[..., k]) for scale, k in zip(scales, columns, strict=True)], axis=-1)

        def design(x: Floats) -> Floats:  # [..., scores] -> [..., 2]
            log_size = np.log(np.maximum(x[..., self._size], 1))
            return np.stack([np.ones_like(log_size), log_size], axis=-1)

        lines: Floats = np.zeros((2, len(columns)))
        if self.of_size and set(columns) != {self._size}:
            lines = np.asarray(np.linalg.lstsq(design(rows), z(rows), rcond=None)[0], np.float64)
            deviations = (z(rows) - design(rows) @ lines).std(axis=0)
            counts = (deviations > 1e-6) & (np.array(columns) != self._size)
            weights, deviations = np.where(counts, weights, 0.0), np.where(counts & ~by_value, deviations, 1.0)

        def total(x: Floats) -> Floats:  # [..., scores] -> [...]
            parts = np.moveaxis((z(x) - design(x) @ lines) / deviations, -1, 0)  # [members, ...]
            values = by_value.reshape(-1, *[1] * (parts.ndim - 1))
            return joined(self.version.method, np.where(values, parts, FORMS[self.version.method](parts)), weights)

        share = _shares(total(rows))
        return lambda row: 100 * share(float(total(row)))


def _distinct(values: Floats) -> tuple[Floats, Floats]:
    """Returns the distinct values in ascending order, and the share of values below each, counting equals by half."""
    distinct, counts = np.unique(values, return_counts=True)
    return distinct, (counts.cumsum() - counts / 2) / len(values)


def _centred(values: Floats) -> Callable[[Floats], Floats]:
    """Returns the difference from the mean."""
    mean = values.mean() if len(values) else 0.0
    return lambda x: np.asarray(x - mean)


def _normal_scores(values: Floats) -> Callable[[Floats], Floats]:
    """Returns z: linear between the values, and beyond them as between the outermost tenths."""
    at, shares = _distinct(values)
    z = normal(shares)
    inner = max(1, len(at) // END)
    if len(at) < 2:
        return np.zeros_like
    low, high = (z[inner] - z[0]) / (at[inner] - at[0]), (z[-1] - z[-1 - inner]) / (at[-1] - at[-1 - inner])
    return lambda x: np.interp(x, at, z) + low * np.minimum(x - at[0], 0) + high * np.maximum(x - at[-1], 0)


def _shares(values: Floats) -> Callable[[float], float]:
    """Returns the share of values below x, which beyond them approaches 0 and 1 without reaching them."""
    at, shares = _distinct(values)
    unit = max(float(at[-1] - at[0]), 1e-9) / END

    def share(x: float) -> float:
        below, above = max(at[0] - x, 0) / unit, max(x - at[-1], 0) / unit
        inside = float(np.interp(x, at, shares))
        return float(inside / (1 + below) if below else 1 - (1 - inside) / (1 + above))

    return share


@cache
def stored() -> dict[str, Any]:
    """The file: for each space its input, batch size and the scores of its networks by proxy, None if missing."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def reference_of(version: Version, space: str, shape: Shape, of_size: bool = False) -> Reference:
    """Returns the networks of the space with this input, or those of all spaces; then of its size if that is asked."""
    spaces = stored()["spaces"]
    own = spaces.get(space)
    if own is not None and tuple(own["input"]) == shape:
        inputs = "x".join(map(str, shape))
        networks = f"{own['networks']} random networks of {space}, input {inputs}, batches of {own['batch_size']}"
        about, rows = f"percentile among {networks}", _rows(version, own)
        return Reference(about, f"percentile of its FLOPs among {networks}", version, rows)
    rows = np.concatenate([_rows(version, one) for one in spaces.values()])
    networks = f"{len(rows):,} random networks of {len(spaces)} spaces"
    alike = f"networks of its size, by {networks}" if of_size else networks
    about, about_size = f"percentile among {alike}", f"percentile of its FLOPs among {networks}"
    return Reference(about, about_size, version, rows, of_size, pooled=True)


def _rows(version: Version, space: dict[str, Any]) -> Floats:
    better, none = stored()["higher_is_better"], [None] * space["networks"]
    columns = [
        (1.0 if better[name] else -1.0) * np.array(space["scores"].get(name, none), np.float64)
        for name in version.scores
    ]
    return np.stack(columns, axis=1)
