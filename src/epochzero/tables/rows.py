"""Rows: the result of reading a table, with architectures as the source writes them and columns of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby

import numpy as np

from epochzero.errors import DataError
from epochzero.registry import near_miss
from epochzero.tables.columns import Column, Numbers


@dataclass(frozen=True)
class Rows:
    """A table in memory: one row per architecture, nan for an unknown value."""

    archs: Sequence[str]
    columns: Mapping[Column, Numbers]
    source: str
    keys: Sequence[str] | None = None
    """the space's `key` of each architecture, if the source holds it"""
    notes: list[str] = field(default_factory=list)
    """sentences about what was left out"""

    def keeping(self, patterns: Iterable[str]) -> Rows:
        """Returns only the columns whose names match one of the patterns, such as `cifar10_*`."""
        kept: dict[Column, Numbers] = {}
        for pattern in patterns:
            names = {column: (column.name, column.full_name) for column in self.columns}
            chosen = {c: self.columns[c] for c in names if any(fnmatchcase(name, pattern) for name in names[c])}
            if not chosen:
                known = list(dict.fromkeys(column.name for column in self.columns))
                raise DataError(
                    f"{self.source} has no column '{pattern}'.{near_miss(pattern, known)} "
                    f"Its columns: {', '.join(known)}."
                )
            kept |= chosen
        return replace(self, columns={column: self.columns[column] for column in self.columns if column in kept})

    def mean_over_seeds(self) -> Rows:
        """Returns one column instead of several runs, with the mean over the known runs."""
        made: dict[Column, Numbers] = {}
        for column, group in groupby(sorted(self.columns, key=_by_run), lambda c: replace(c, seed=None)):
            made[column] = mean([self.columns[run] for run in group])
        order = dict.fromkeys(replace(column, seed=None) for column in self.columns)
        return replace(self, columns={column: made[column] for column in order})


def mean(runs: Sequence[Numbers]) -> Numbers:
    """Returns the mean over the known runs, nan if there is none."""
    stacked = np.stack(runs)  # [runs, rows]
    known = ~np.isnan(stacked)
    total = np.where(known, stacked, 0).sum(0)
    return np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.nan)


def _by_run(column: Column) -> tuple[str, ...]:
    return tuple(f"{value}" for value in replace(column, seed=None).as_json().values())


class Gatherer:
    """Collects single numbers, in any order, into rows."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._columns: dict[Column, array[float]] = {}

    def row(self, arch: str) -> int:
        """Returns the row of an architecture, adding it if it is new."""
        return self._rows.setdefault(arch, len(self._rows))

    def put(self, row: int, column: Column, value: float) -> None:
        numbers = self._columns.setdefault(column, array("d"))
        if len(numbers) <= row:
            numbers.extend([np.nan] * (row + 1 - len(numbers)))
        numbers[row] = value

    def get(self, row: int, column: Column) -> float:
        numbers = self._columns.get(column, ())
        return numbers[row] if row < len(numbers) else np.nan

    def rows(self, source: str, keys: Sequence[str] | None = None, notes: Iterable[str] = ()) -> Rows:
        if not self._rows:
            raise DataError(f"{source} holds no architectures.")
        columns = {}
        for column, numbers in self._columns.items():
            numbers.extend([np.nan] * (len(self._rows) - len(numbers)))
            columns[column] = np.frombuffer(numbers, np.float64)
        return Rows(list(self._rows), columns, source, keys, list(notes))
