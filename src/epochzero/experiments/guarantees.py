"""What the thesis' tables of generalisation guarantees share: the bounds of its section 7.3.3 as settings of `hnas`.

A row of those tables has a figure for each metric M, a column here is a target: `by_metric` turns one into the other.
The tuned scenarios have mu and nu found by Bayesian optimisation over hundreds of steps, which comes with step 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from epochzero.experiments.correlations import Figures

METRICS = ("grad", "snip", "grasp", "trace")
OTHER_METRICS = ("knas", "fisher", "synflow", "naswot")
TUNED = "The non-realizable scenario is left out: its parameters are tuned by Bayesian optimisation, which is step 6."


def realizable(metric: str) -> str:
    """1/M, corollary 7.1."""
    return f"hnas(form=realizable,metric={metric})"


def with_kappa(metric: str) -> str:
    """kappa/M"""
    return f"hnas(metric={metric})"


def with_trade_off(metric: str) -> str:
    return f"1/M and trade-off, {metric}"


def non_realizable(metric: str) -> str:
    """The bound of corollary 7.2, tuned."""
    return f"non-realizable, {metric}"


def by_metric(
    scenario: Callable[[str], str], rows: Sequence[Sequence[float]], metrics: Sequence[str] = METRICS
) -> Figures:
    """Figures [target][metric] as figures by proxy."""
    return {scenario(metric): [row[i] for row in rows] for i, metric in enumerate(metrics)}
