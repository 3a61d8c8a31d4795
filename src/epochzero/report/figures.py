"""The figures of a run's result, with an interval and the paper's figure if there are any.

Stores of earlier releases keep only the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochzero.store import JSON, Run

ABOUT = {
    "accuracy": "of the ensemble, which averages its members' probabilities, on test images",
    "error": "1 - accuracy",
    "ate": "average test error: the mean of the members' own errors",
    "ppd": "pairwise predictive disagreement: how often two members predict different classes",
    "ece": "expected calibration error: how far confidence is from accuracy",
    "nll": "negative log likelihood of the true classes; lower is better",
    "params": "of all members together",
}
"""descriptions of an ensemble's figures"""


def figures_of(run: Run) -> list[dict[str, Any]]:
    """The numbers of a run's result, in its order."""
    abouts = ABOUT if run.kind == "ensemble" else {}
    figures = []
    for name, kept in (run.result or {}).items():
        whole = kept if isinstance(kept, Mapping) else {"value": kept}
        if (isinstance(kept, Mapping) and "value" in kept) or _number(kept) is not None:
            figures.append(_figure(name, whole, abouts.get(name, "")))
    return figures


def _figure(name: str, kept: Mapping[str, JSON], about: str) -> dict[str, Any]:
    numbers = {part: _number(kept.get(part)) for part in ("value", "low", "high", "n", "paper")}
    statistic, why = str(kept.get("statistic") or ""), str(kept.get("why") or "")
    return {"name": name.removesuffix(f" {statistic}"), "statistic": statistic, "why": why, "about": about, **numbers}


def _number(value: JSON) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
