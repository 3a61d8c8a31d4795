"""Networks without a score, treated the same by every statistic.

A network without a score has no number (see `Score`), so it cannot simply be ranked. There are two ways to treat it:

    drop     leave it out of everything, including the best network; it is counted, with its reason
    worst    rank it below every scored network, tied with the others

If scores are repeated, `drop` leaves out a network that lacks a score in any repeat, so that all repeats have the same
networks; `worst` ranks it last in the repeats that lack it. A network ranked worst still has no number, so there is no
Pearson correlation then.
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
"""One score per network, or one row of scores per repeat."""
Mask = NDArray[np.bool_]


def as_rows(scores: GivenScores) -> list[list[Score]]:
    """Returns scores [S][n]; one row if they are not repeated."""
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
    """Returns True for each score that is a number [S, n]."""
    return np.array([[_is_number(score) for score in row] for row in rows], bool)


def reasons(rows: Sequence[Sequence[Score]]) -> dict[str, int]:
    """Returns the number of networks without a score by reason (of the first such repeat), the most frequent first."""
    missing = ([score for score in network if not _is_number(score)] for network in zip(*rows, strict=True))
    tally = Counter(_why(scores[0]) for scores in missing if scores)
    return dict(tally.most_common())


def comparable(
    rows: Sequence[Sequence[Score]], has: Mask, higher_is_better: bool, unscored: Unscored
) -> tuple[Floats, Mask]:
    """Returns scores [S, kept], more being better, and a mask of the kept networks [n]; `has` marks existing scores."""
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
