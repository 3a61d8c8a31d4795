"""How well a proxy orders networks: its rank correlation with the truth, and what became of the rest.

A network without a score is no number (see `Score`), so it cannot simply be ranked. What is done with such
networks is a named choice:

    drop     leave them out of the correlation; they are counted, with their reasons
    worst    rank them below every scored network, tied with each other
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from epochzero.errors import DegenerateError, UserError
from epochzero.stats.correlation import Correlation, Floats, kendall, spearman
from epochzero.stats.paired import paired_difference
from epochzero.types import Score

Unscored = Literal["drop", "worst"]


@dataclass(frozen=True)
class ProxyQuality:
    """Positive correlations mean that the proxy points the right way as declared."""

    n: int
    """networks with a score"""
    unscored: int
    unscored_why: dict[str, int]
    """how many networks have no score for each reason, the most frequent first"""
    spearman: float | None
    spearman_ci: tuple[float, float] | None
    kendall: float | None
    kendall_ci: tuple[float, float] | None
    why: str = ""
    """why there is no correlation; empty where there is one"""


def proxy_quality(
    scores: Sequence[Score],
    truth: Sequence[float] | Floats,
    higher_is_better: bool,
    *,
    unscored: Unscored = "drop",
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> ProxyQuality:
    """Spearman's rho and Kendall's tau-b of scores with the truth, of which more is always better."""
    if unscored not in ("drop", "worst"):
        raise UserError(f"Networks without a score are treated by 'drop' or 'worst', not '{unscored}'.")
    if len(scores) != len(truth):
        raise UserError(f"There are {len(scores)} scores but {len(truth)} true values; give one for each network.")
    reasons = Counter(_why_unscored(score) for score in scores if not _is_scored(score))
    missing = reasons.total()
    tally = dict(reasons.most_common())
    n = len(scores) - missing
    try:
        x, y = _comparable(scores, np.asarray(truth, np.float64), higher_is_better, unscored)
        rho = spearman(x, y, resamples=resamples, confidence=confidence, seed=seed)
        tau = kendall(x, y, resamples=resamples, confidence=confidence, seed=seed)
    except DegenerateError as error:
        return ProxyQuality(n, missing, tally, None, None, None, None, why=str(error))
    return ProxyQuality(n, missing, tally, rho.value, (rho.low, rho.high), tau.value, (tau.low, tau.high))


def paired_quality(
    first: Sequence[Score],
    second: Sequence[Score],
    truth: Sequence[float] | Floats,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Correlation:
    """By how much the first's Spearman exceeds the second's on the networks that both score, more being better.

    `DegenerateError` where there is no such difference.
    """
    both = np.array([_is_scored(a) and _is_scored(b) for a, b in zip(first, second, strict=True)], bool)
    a, b = (np.array([score.value for score in scores])[both] for scores in (first, second))
    chosen = np.asarray(truth, np.float64)[both]
    return paired_difference(a, b, chosen, resamples=resamples, confidence=confidence, seed=seed)


def _is_scored(score: Score) -> bool:
    return score.ok and not math.isnan(score.value)


def _why_unscored(score: Score) -> str:
    return score.why or ("the score is nan" if score.ok else score.status)


def _comparable(
    scores: Sequence[Score], truth: Floats, higher_is_better: bool, unscored: Unscored
) -> tuple[Floats, Floats]:
    """Scores where more is better, and the truth of the same networks."""
    scored = np.array([_is_scored(score) for score in scores], bool)
    if not scored.any():
        raise DegenerateError(f"none of the {len(scores)} networks has a score")
    values = np.array([score.value for score in scores])[scored] * (1 if higher_is_better else -1)
    if unscored == "drop":
        return values, truth[scored]
    ranks = np.zeros(len(scores))
    ranks[scored] = rankdata(values, method="dense")  # from 1
    return ranks, truth
