"""The input of every statistic: scores [n], or [S, n] if repeated, and the truth [n] of the same networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from epochzero.errors import DegenerateError, UserError
from epochzero.stats.bootstrap import Floats

Scores = Sequence[float] | Sequence[Sequence[float]] | Floats
"""One number per network, or one row of numbers per repeat; more is better."""
Truth = Sequence[float] | Floats


def as_sample(scores: Scores, truth: Truth) -> tuple[Floats, Floats]:
    """Returns scores [S, n] and truth [n]; UserError if their shapes do not match."""
    x, y = np.asarray(scores, np.float64), np.asarray(truth, np.float64)
    if x.ndim not in (1, 2) or y.ndim != 1 or x.shape[-1:] != y.shape or not len(np.atleast_2d(x)):
        raise UserError(
            f"A statistic needs a score and a true value for each network, or rows of scores for repeats; "
            f"the scores have shape {x.shape}, the truth {y.shape}."
        )
    for name, values in (("scores", x), ("truth", y)):
        refuse_nan(name, values)
    return np.atleast_2d(x), y


def rankable(scores: Scores, truth: Truth) -> tuple[Floats, Floats]:
    """Like `as_sample`, but raises `DegenerateError` with fewer than 3 points or a constant side."""
    x, y = as_sample(scores, truth)
    n = len(y)
    if n < 3:
        raise DegenerateError(f"a correlation needs at least 3 networks; there are {n}")
    for repeat, values in enumerate(x, 1):
        if (values == values[0]).all():
            where = f" in repeat {repeat}" if len(x) > 1 else ""
            raise DegenerateError(f"all {n} scores are equal{where}, so nothing can be ranked")
    if (y == y[0]).all():
        raise DegenerateError(f"all {n} true values are equal, so nothing can be ranked")
    return x, y


def refuse_nan(name: str, values: Floats) -> None:
    missing = np.argwhere(np.isnan(values))
    if len(missing):
        raise UserError(f"The {name} hold nan (first at position {missing[0, -1]}); leave such networks out.")
