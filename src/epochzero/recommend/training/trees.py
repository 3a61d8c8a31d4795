"""Gradient-boosted trees on a table of clicks, by scikit-learn, as a baseline.

Numbers are numbers, and ids are numbers too, in the order of their rows: by frequency for a vocabulary. Of three
learning rates the one with the lowest log loss on the validation rows is taken, and each stops on the same rows.

Friedman. Greedy function approximation: a gradient boosting machine. Annals of Statistics 29, 2001
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import needed
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.training.metrics import Metrics, measure

RATES = (0.03, 0.1, 0.3)
MOST, WAIT = 1000, 20
"""the most trees, and how many without progress end a training"""


def trees(
    table: CtrTable, parts: Sequence[Part] = ("val", "test"), seed: int = 0, rows: int | None = None
) -> dict[Part, Metrics]:
    """The metrics on the rows of the parts, after training on the first `rows` rows."""
    needed("sklearn", "Gradient-boosted trees", "trees")
    from sklearn.ensemble import HistGradientBoostingClassifier

    (x, y), (x_val, y_val) = _columns(table, "train", rows), _columns(table, "val")
    found: list[tuple[float, Any]] = []
    for rate in RATES:
        model = HistGradientBoostingClassifier(
            learning_rate=rate, max_iter=MOST, early_stopping=True, n_iter_no_change=WAIT, random_state=seed
        ).fit(x, y, X_val=x_val, y_val=y_val)
        found.append((measure(model.decision_function(x_val), y_val).log_loss, model))
    _, best = min(found, key=lambda one: one[0])
    return {part: measure(best.decision_function((held := _columns(table, part))[0]), held[1]) for part in parts}


def _columns(table: CtrTable, part: Part, rows: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The inputs [N, D + F] and labels [N] of a part."""
    batches = list(table.batches(part, size=1 << 16, stop=rows))
    x = np.concatenate([np.concatenate([b.dense.numpy(), b.ids.numpy().astype(np.float32)], 1) for b in batches])
    return x, np.concatenate([b.label.numpy().astype(np.uint8) for b in batches])
