"""Rank correlations of scores with known accuracies, with intervals, and with each other.

With many networks the bootstrap draws fewer resamples, since its time grows with both: 1,000 for up to 5,000 networks,
and at least 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from epochzero.errors import DegenerateError
from epochzero.report.candidates import Candidates, Column
from epochzero.stats import spearman
from epochzero.stats.bootstrap import Floats
from epochzero.stats.correlation import rho_of

RESAMPLES, NETWORKS, FEWEST = 1000, 5000, 100
MOST, FEW = 24, 8
"""most columns of the table of agreement, and fewest networks"""


def with_truth(candidates: Candidates) -> list[dict[str, Any]]:
    """Every score and cost against every truth, by the size of the correlation."""
    judged: list[dict[str, Any]] = []
    for truth in candidates.of_kind("truth"):
        each = [_judged(column, truth) for column in candidates.of_kind("score", "cost")]
        judged += sorted(each, key=lambda one: -abs(one["value"] or 0.0))
    return judged


def _judged(column: Column, truth: Column) -> dict[str, Any]:
    """The correlation over networks with the truth and a score in every repeat; higher scores count as better."""
    both = ~(np.isnan(column.repeats).any(axis=0) | np.isnan(truth.values))
    n = int(both.sum())
    resamples = max(FEWEST, min(RESAMPLES, RESAMPLES * NETWORKS // max(n, 1)))
    about = {"score": column.name, "truth": truth.name, "n": n, "repeats": len(column.repeats), "resamples": resamples}
    sign = -1.0 if column.kind == "score" and not column.higher else 1.0
    try:
        rho = spearman(sign * column.repeats[:, both], truth.merits[both], resamples=resamples)
    except DegenerateError as error:
        return {**about, "value": None, "low": None, "high": None, "why": str(error)}
    return {**about, "value": rho.value, "low": rho.low, "high": rho.high, "why": ""}


def with_each_other(candidates: Candidates) -> dict[str, Any] | None:
    """Spearman's rho of scores, truths and costs with each other [columns][columns].

    None with fewer than two columns, or of so few networks that it would be chance.
    """
    if len(candidates) < FEW:
        return None
    columns = [column for column in candidates.of_kind("score", "truth", "cost") if _varies(column.values)][:MOST]
    if len(columns) < 2:
        return None
    oriented = [column.values if column.kind == "cost" else column.merits for column in columns]
    every = range(len(columns))
    half = {(a, b): _rho(oriented[a], oriented[b]) for a in every for b in every if a <= b}
    pairs = [[half[min(a, b), max(a, b)] for b in every] for a in every]
    return {
        "names": [column.name for column in columns],
        "values": [[rho for rho, _ in row] for row in pairs],
        "networks": [[n for _, n in row] for row in pairs],
    }


def _rho(x: Floats, y: Floats) -> tuple[float | None, int]:
    both = ~(np.isnan(x) | np.isnan(y))
    n = int(both.sum())
    return rho_of(x[both], y[both]) if n >= 3 else None, n


def _varies(values: Sequence[float] | Floats) -> bool:
    known = np.asarray(values)[~np.isnan(values)]
    return len(known) >= 3 and bool((known != known[0]).any())
