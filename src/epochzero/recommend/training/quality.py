r"""The worth of predictions beyond log loss: calibration, a temperature, AUC within groups, lift.

    calibration error = sum over bins of n_b / N |mean p - rate of clicks|,   15 bins of about as many rows, by p
    ratio             = mean p / rate of clicks
    temperature       T > 0 with the least log loss of z / T on validation rows
    GAUC              = sum over groups of n_g AUC_g / sum of n_g,   groups (users) that have clicks and others
    lift              = rate of clicks in the tenth of the rows with the highest p / rate in all

Rows of equal p are in one bin; where the last tenth ends among rows of equal p, each counts in part. Rows whose group
is missing, unseen or rare are in no group.

Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017. arXiv:1706.04599
Zhou et al. Deep interest network for click-through rate prediction. KDD 2018. arXiv:1706.06978 (GAUC)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from epochzero.errors import UserError
from epochzero.recommend.data.encoding import FIRST_VALUE, UNSEEN
from epochzero.recommend.data.split import PARTS
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.training.metrics import auc, log_loss
from epochzero.recommend.training.row_tables import device_of
from epochzero.recommend.training.trainer import logits_of
from epochzero.registry import near_miss

BINS, TENTH = 15, 0.1
SHOWN = 20
"""segments, the largest first"""
WIDEST = math.log(20)
"""limit of the logarithm of a temperature"""

Floats = NDArray[np.float64]


def sigmoid(logits: Floats) -> Floats:
    chances: Floats = (1 + np.tanh(logits / 2)) / 2
    return chances


@dataclass(frozen=True)
class Bin:
    """Rows of about the same probability."""

    predicted: float
    rate: float
    rows: int


@dataclass(frozen=True)
class Calibration:
    """Agreement of probabilities with rates of clicks."""

    error: float
    ratio: float
    """nan without clicks"""
    bins: tuple[Bin, ...]


def calibration(chances: ArrayLike, labels: ArrayLike, bins: int = BINS) -> Calibration:
    """The calibration of probabilities [N] of labels [N], 0 or 1."""
    p, clicks = np.asarray(chances, np.float64), np.asarray(labels, np.float64)
    ordered = np.sort(p)
    edges = np.unique(ordered[[len(p) * number // bins for number in range(1, bins)]])
    place = np.searchsorted(edges, p, side="right")
    count, sums, hits = (np.bincount(place, of, len(edges) + 1) for of in (None, p, clicks))
    filled = count > 0
    found = zip(sums[filled] / count[filled], hits[filled] / count[filled], count[filled], strict=True)
    made = tuple(Bin(float(mean), float(rate), int(rows)) for mean, rate, rows in found)
    error = sum(one.rows * abs(one.predicted - one.rate) for one in made) / len(p)
    return Calibration(error, float(p.sum() / clicks.sum()) if clicks.any() else math.nan, made)


def temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The temperature of least log loss."""
    from scipy.optimize import minimize_scalar

    z, clicks = np.asarray(logits, np.float64), np.asarray(labels)
    found = minimize_scalar(lambda t: log_loss(z / math.exp(t), clicks), bounds=(-WIDEST, WIDEST), method="bounded")
    return math.exp(float(found.x))


def grouped_auc(scores: ArrayLike, labels: ArrayLike, groups: ArrayLike) -> tuple[float, int, int]:
    """The GAUC, its number of groups, and their rows; nan if no group has clicks and others."""
    scores, clicks, groups = np.asarray(scores), np.asarray(labels) > 0, np.asarray(groups)
    order = np.lexsort((scores, groups))
    scores, clicks = scores[order], clicks[order]
    _, start, group = np.unique(groups[order], return_index=True, return_inverse=True)
    change = np.concatenate([[True], (np.diff(group) > 0) | (np.diff(scores) != 0)])  # a new group or score begins
    run = np.cumsum(change) - 1
    sizes = np.bincount(run)
    rank = (np.cumsum(sizes) - (sizes - 1) / 2)[run] - start[group]  # ties share their mean, counted from 1
    rows, positive = np.bincount(group), np.bincount(group, clicks)
    pairs = positive * (rows - positive)
    usable = pairs > 0
    above = np.bincount(group, rank * clicks) - positive * (positive + 1) / 2
    weight = rows[usable]
    if not len(weight):
        return math.nan, 0, 0
    return float((above[usable] / pairs[usable] * weight).sum() / weight.sum()), len(weight), int(weight.sum())


def lift(scores: ArrayLike, labels: ArrayLike, share: float = TENTH) -> float:
    """The rate of clicks in the highest `share` of the rows over that in all; nan without clicks."""
    scores, clicks = np.asarray(scores), np.asarray(labels, np.float64)
    if not clicks.any():
        return math.nan
    taken = share * len(scores)
    edge = np.sort(scores)[::-1][math.ceil(taken) - 1]
    above, tied = scores > edge, scores == edge
    hits = clicks[above].sum() + clicks[tied].mean() * (taken - above.sum())
    return float(hits / taken / clicks.mean())


@dataclass(frozen=True)
class Segment:
    """Predictions of the rows with one value of a column."""

    value: str
    rows: int
    rate: float
    predicted: float
    log_loss: float
    auc: float
    lift: float


def segments(logits: Floats, labels: NDArray[Any], ids: NDArray[Any], names: dict[int, str]) -> list[Segment]:
    """The largest segments of rows by the id of a column [N]."""
    values, count = np.unique(ids, return_counts=True)
    found = []
    for value in values[np.argsort(-count, kind="stable")][:SHOWN]:
        mine = ids == value
        z, clicks = logits[mine], labels[mine]
        sizes = len(z), float(clicks.mean()), float(sigmoid(z).mean())
        found.append(Segment(names[int(value)], *sizes, log_loss(z, clicks), auc(z, clicks), lift(z, clicks)))
    return found


@dataclass(frozen=True)
class Measures:
    """Further measures of a training."""

    group: str | None = None
    """the column, such as a user, of GAUC"""
    segment: str | None = None
    """the column whose values are measured one by one"""
    temperature: bool = False
    """true if logits are divided by the temperature of the validation rows, in the metrics and in `predict`"""


class Judge:
    """Measures models on a table, by the columns that group and divide its rows."""

    def __init__(self, table: CtrTable, measures: Measures = Measures()) -> None:
        self.table, self.group, self.segment = table, measures.group, measures.segment
        self.names = [column.name for column in table.encoding.schema.categorical]
        for name in {self.group, self.segment} - {None}:
            if name not in self.names:
                raise UserError(
                    f"The table has no categorical column '{name}' to group by.{near_miss(str(name), self.names)}"
                )
        if self.segment is not None and self.segment not in table.encoding.vocabulary:
            raise UserError(
                f"The column '{self.segment}' is hashed, so its values have no names: give it a vocabulary."
            )

    def outputs(self, model: nn.Module, part: Part) -> tuple[Floats, NDArray[np.int64]]:
        """Logits [N] and labels [N] of the rows of a part."""
        training, device = model.training, device_of(model)
        model.eval()
        logits, labels = [np.zeros(0)], [np.zeros(0, np.int64)]
        with torch.no_grad():
            for batch in self.table.batches(part, size=8192):
                outputs = logits_of(model(batch.dense.to(device), batch.ids.to(device)))
                logits.append(outputs.double().cpu().numpy())
                labels.append(batch.label.long().numpy())
        model.train(training)
        return np.concatenate(logits), np.concatenate(labels)

    def ids(self, column: str, part: Part) -> NDArray[np.int32]:
        """The ids of a column in the rows of a part [N], not folded."""
        chosen = self.table.column("part") == PARTS.index(part)
        ids: NDArray[np.int32] = self.table.column("ids")[:, self.names.index(column)][chosen]
        return ids

    def temperature(self, model: nn.Module) -> float:
        """The temperature that fits the validation rows."""
        return temperature(*self.outputs(model, "val"))

    def quality(self, model: nn.Module, part: Part, heat: float = 1.0) -> dict[str, Any]:
        """Everything above, as JSON fields, of the logits divided by a temperature."""
        logits, labels = self.outputs(model, part)
        logits = logits / heat
        said: dict[str, Any] = {"log_loss": log_loss(logits, labels), "lift": lift(logits, labels)}
        said["calibration"] = asdict(calibration(sigmoid(logits), labels))
        if self.group is not None:
            ids = self.ids(self.group, part)
            known = ids > (UNSEEN if self.group in self.table.encoding.vocabulary else 0)
            value, groups, rows = grouped_auc(logits[known], labels[known], ids[known])
            said["gauc"] = {"column": self.group, "value": value, "groups": groups, "rows": rows}
        if self.segment is not None:
            found = segments(logits, labels, self.ids(self.segment, part), self._names_of(self.segment))
            said["segments"] = {"column": self.segment, "values": [asdict(one) for one in found]}
        return said

    def _names_of(self, column: str) -> dict[int, str]:
        known = enumerate(self.table.encoding.vocabulary[column], FIRST_VALUE)
        return {0: "missing", UNSEEN: "unseen or rare", **dict(known)}


def in_words(quality: Mapping[str, Any]) -> str:
    """The main figures of `Judge.quality`."""
    curve = quality["calibration"]
    said = [f"calibration error {curve['error']:.4f}", f"predicted / observed clicks {_number(curve['ratio'])}"]
    said.append(f"lift {_number(quality['lift'])} in the highest tenth")
    if group := quality.get("gauc"):
        value = f"{group['groups']:,} groups of '{group['column']}'"
        said.append(f"GAUC {_number(group['value'])} over {value}" if group["groups"] else "no GAUC: no group has both")
    return ", ".join(said)


def _number(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.4g}"
