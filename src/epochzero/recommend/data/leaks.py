"""Columns that tell the label by themselves: known only after the click, or a copy of the label.

A column alone predicts the rows that are held out by the rate of clicks of its values in the training rows, of numbers
by intervals of their order. If this orders them almost without error (AUC from .999), the column is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.recommend.data.schema import Schema
from epochzero.recommend.data.split import PARTS
from epochzero.recommend.training.metrics import auc

LEAKING = 0.999
TRAIN, HELD_OUT = 200_000, 50_000
"""the most rows of either that are read"""
INTERVALS = 64
FEW = 5
"""clicks, and other rows, from which on an AUC is taken seriously"""


def leaks(
    dense: NDArray[np.float32],
    ids: NDArray[np.int32],
    label: NDArray[np.uint8],
    part: NDArray[np.uint8],
    schema: Schema,
) -> Iterator[str]:
    """A sentence for each column that tells the label, of columns [N, D] and [N, F], labels [N] and parts [N]."""
    train = np.flatnonzero(part == PARTS.index("train"))[:TRAIN]
    others = np.flatnonzero(part != PARTS.index("train"))[:HELD_OUT]
    known, clicks = label[train], label[others]
    if min(int(clicks.sum()), int((1 - clicks).sum())) < FEW:
        return
    columns: list[tuple[str, NDArray[Any], int]] = [(c.name, dense, place) for place, c in enumerate(schema.dense)]
    columns += [(c.name, ids, place) for place, c in enumerate(schema.categorical)]
    for name, table, place in columns:
        values, new = table[train, place], table[others, place]
        if table is dense:
            edges = np.unique(np.quantile(values, np.linspace(0, 1, INTERVALS + 1)))
            values, new = np.searchsorted(edges, values), np.searchsorted(edges, new)
        area = alone(values, known, new, clicks)
        if area >= LEAKING:
            yield (
                f"The column '{name}' tells the label by itself (AUC {area:.4f} on rows held out): if it is not known "
                "before the click, leave it out of the schema."
            )


def alone(
    values: NDArray[np.integer], label: NDArray[np.uint8], new: NDArray[np.integer], clicks: NDArray[np.uint8]
) -> float:
    """The AUC on new values [M] of the rate of clicks of each value [N], drawn towards that of all."""
    size = int(max(values.max(initial=0), new.max(initial=0))) + 1
    count, hits = np.bincount(values, minlength=size), np.bincount(values, label, size)
    return auc(((hits + label.mean()) / (count + 1))[new], clicks)
