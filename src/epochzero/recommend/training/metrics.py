r"""Metrics of predicted clicks: log loss, and the area under the ROC curve, exact with ties.

    log loss = mean over rows of log(1 + exp(-s z)),  s = 1 for a click, else -1, z the logit
    AUC      = P(z_click > z_none) + P(z_click = z_none) / 2  =  (sum of the clicks' ranks - P (P + 1) / 2) / (P N)

with P clicks and N other rows; rows of equal z share the mean of their ranks (Mann and Whitney, 1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from epochzero.errors import DataError


@dataclass(frozen=True)
class Metrics:
    """Metrics of a model on some rows."""

    log_loss: float
    auc: float
    """nan if all rows have the same label"""
    rows: int
    why: str = ""
    """the reason for a missing AUC"""


def log_loss(logits: ArrayLike, labels: ArrayLike) -> float:
    """The mean log loss of logits [N] and labels [N], 0 or 1."""
    sign = 2 * np.asarray(labels, np.float64) - 1
    return float(np.logaddexp(0, -sign * np.asarray(logits, np.float64)).mean())


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """The area under the ROC curve of scores [N] and labels [N]; nan if all labels are the same."""
    scores, clicks = np.asarray(scores), np.asarray(labels) > 0
    positive = int(clicks.sum())
    negative = len(clicks) - positive
    if not positive or not negative:
        return math.nan
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(sizes) - (sizes - 1) / 2  # the mean rank of each distinct score
    above = ranks[group][clicks].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def measure(logits: ArrayLike, labels: ArrayLike) -> Metrics:
    """Log loss and AUC of logits [N] and labels [N]."""
    logits, labels = np.asarray(logits), np.asarray(labels)
    if not len(labels):
        raise DataError("There are no rows to measure a model on: give a table whose part is not empty.")
    if not np.isfinite(logits).all():
        raise DataError("The model predicts infinite or missing (nan) numbers: train it with a lower learning rate.")
    area = auc(logits, labels)
    one = f"all {len(labels):,} rows have the label {int(labels[0])}, so there is no AUC"
    return Metrics(log_loss(logits, labels), area, len(labels), one if math.isnan(area) else "")
