r"""Several scores of each network turned into one, for the set of networks at hand.

    rank       sum_k log(rank_k / N)          AZ-NAS; the best network has rank N
    mean_rank  mean_k rank_k
    te_rank    sum_k rank_k, equal scores sharing the same rank and no gaps, as TE-NAS compares candidates
    harmonic   2ab / (a + b) of two scores, each network by itself, as in Dextr's Table 4

The first three depend on which networks are compared: they are computed anew for every set, and mean nothing for one
network alone. A network that lacks one of the scores gets none.

Lee, Ham. AZ-NAS. CVPR 2024. arXiv:2403.19232; Chen, Gong, Wang. TE-NAS. ICLR 2021. arXiv:2102.11535
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Merits = Sequence[Sequence[float | None]]
"""for each network, the merit (higher is better) of each of its scores, None where it has none"""


def _ranks(column: Floats, dense: bool = False) -> Floats:
    """Ranks from 1, the best highest; equals share their mean rank, or with `dense` one rank without gaps."""
    order = np.argsort(column)
    ascending = column[order]
    first = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))  # of each group of equals
    times = np.diff(first, append=len(column))
    shared = np.arange(1, len(first) + 1) if dense else first + (times + 1) / 2
    ranks = np.empty(len(column))
    ranks[order] = np.repeat(shared, times)
    return ranks


def _log_rank(columns: Floats) -> Floats:
    return np.asarray(sum(np.log(_ranks(column) / len(column)) for column in columns))


def _mean_rank(columns: Floats) -> Floats:
    return np.asarray(np.mean([_ranks(column) for column in columns], axis=0))


def _te_rank(columns: Floats) -> Floats:
    return np.asarray(sum(_ranks(column, dense=True) for column in columns))


METHODS: dict[str, Callable[[Floats], Floats]] = {"rank": _log_rank, "mean_rank": _mean_rank, "te_rank": _te_rank}


def combined(method: str, merits: Merits) -> list[float | None]:
    """One merit for each network, from the ranks of its scores among the networks that have all of them."""
    rows = np.array([[np.nan if value is None else value for value in row] for row in merits], np.float64)
    return [None if np.isnan(value) else float(value) for value in combined_rows(method, rows)] if len(rows) else []


def combined_rows(method: str, rows: Floats) -> Floats:
    """The same for rows of numbers [networks, scores], nan where there is none."""
    whole = ~np.isnan(rows).any(axis=1)
    result = np.full(len(rows), np.nan)
    if whole.any():
        result[whole] = METHODS[method](rows[whole].T)
    return result


def harmonic(merits: Merits) -> list[float | None]:
    """The harmonic mean of each network's scores; none where one of them is missing or not positive."""
    positive = ([value for value in row if value is not None and value > 0] for row in merits)
    return [
        len(row) / sum(1 / value for value in kept) if len(kept) == len(row) else None
        for row, kept in zip(merits, positive, strict=True)
    ]
