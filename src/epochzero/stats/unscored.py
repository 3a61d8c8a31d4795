"""Networks without a score, treated alike by every statistic.

A network without a score is no number (see `Score`), so it cannot simply be ranked. What is done with such
networks is a named choice:

    drop     leave them out of everything, the best there is included; they are counted, with their reasons
    worst    rank them below every scored network, tied with each other

Where scores are repeated, `drop` leaves out a network that lacks a score in any repeat, so that all repeats speak
of the same networks; `worst` ranks it last in the repeats that lack it. Ranked worst, a network still has no number:
there is then no Pearson correlation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DegenerateError, UserError
from epochzero.stats.bootstrap import Floats
from epochzero.stats.ranks import Ties
from epochzero.types import Score

Unscored = Literal["drop", "worst"]
GivenScores = Sequence[Score] | Sequence[Sequence[Score]]
"""one score a network, or one row of them a repeat"""
Mask = NDArray[np.bool_]


def as_rows(scores: GivenScores) -> list[list[Score]]:
    """Scores [S][n]; one row where they are not repeated."""
    rows: list[list[Score]] = [[]]
    for item in scores:
        if isinstance(item, Score):
            rows[0].append(item)
        else:
            rows.append(list(item))
    if len(rows) > 1:
        del rows[0]
    if len({len(row) for row in rows}) > 1:
        raise UserError(f"The repeats score {', '.join(str(len(row)) for row in rows)} networks; give equally many.")
    return rows


def scored(rows: Sequence[Sequence[Score]]) -> Mask:
    """Whether each score is a number [S, n]."""
    return np.array([[_is_number(score) for score in row] for row in rows], bool)


def reasons(rows: Sequence[Sequence[Score]]) -> dict[str, int]:
    """How many networks lack a score for each reason, that of the first repeat that lacks it; most frequent first."""
    missing = ([score for score in network if not _is_number(score)] for network in zip(*rows, strict=True))
    tally = Counter(_why(scores[0]) for scores in missing if scores)
    return dict(tally.most_common())


def comparable(
    rows: Sequence[Sequence[Score]], has: Mask, higher_is_better: bool, unscored: Unscored
) -> tuple[Floats, Mask]:
    """Scores [S, kept] where more is better, and which networks [n] are kept, given which of the scores are there."""
    if unscored not in ("drop", "worst"):
        raise UserError(f"Networks without a score are treated by 'drop' or 'worst', not '{unscored}'.")
    for repeat, row in enumerate(has, 1):
        if not row.any():
            where = f" in repeat {repeat}" if len(has) > 1 else ""
            raise DegenerateError(f"none of the {len(row)} networks has a score{where}")
    values = np.array([[score.value for score in row] for row in rows]) * (1 if higher_is_better else -1)
    if unscored == "drop" or has.all():
        kept: Mask = np.logical_and.reduce(has)
        return values[:, kept], kept
    ranks = np.zeros(values.shape)
    for row, there, of in zip(values, has, ranks, strict=True):
        of[there] = Ties(row[there]).group + 1
    return ranks, np.ones(values.shape[1], bool)


def _is_number(score: Score) -> bool:
    return score.ok and not math.isnan(score.value)


def _why(score: Score) -> str:
    return score.why or ("the score is nan" if score.ok else score.status)
