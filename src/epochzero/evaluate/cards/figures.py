"""The figures of the cards and of docs/results, from tables in this folder.

published.csv    figures of the papers, with our sign: that of `plain` is reversed, since lower is better here
measured.csv     what we measured; written by benchmarks/correlations.py
precision.csv    rank agreement of scores by factors rounded to TF32 with single precision; from benchmarks/agreement.py
costs.csv        time and peak memory of one network for each proxy; from benchmarks/costs.py
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, get_type_hints

FOLDER = Path(__file__).parent
PUBLISHED, MEASURED, PRECISION, COSTS = (
    FOLDER / f"{name}.csv" for name in ("published", "measured", "precision", "costs")
)
SURVIVES = 0.999
"""lower end of the rank agreement from which a lower precision may be used"""
T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """A rank correlation that a paper prints, positive where the proxy points the right way as declared."""

    proxy: str
    space: str
    target: str
    """the data that the networks were trained on, or the task"""
    statistic: str
    value: float
    source: str


@dataclass(frozen=True)
class Measured:
    """Rank correlations with 95 % bootstrap intervals, positive where the proxy points the right way as declared."""

    proxy: str
    space: str
    data: str
    """the data that the proxy was scored on"""
    target: str
    """the column of the accuracy table"""
    n: int
    """networks with a score"""
    unscored: int
    spearman: float
    low: float
    high: float
    kendall: float
    kendall_low: float
    kendall_high: float
    seed: int
    machine: str
    date: str


@dataclass(frozen=True)
class Precision:
    """Spearman's correlation of scores by factors rounded to TF32 with those in single precision, and its interval."""

    proxy: str
    space: str
    n: int
    spearman: float
    low: float
    high: float
    machine: str
    date: str


@dataclass(frozen=True)
class Cost:
    """Time and memory of one network with only this proxy."""

    proxy: str
    network: str
    batch: int
    milliseconds: float
    mebibytes: float
    """peak memory in addition to weights and data"""
    machine: str
    date: str


@cache
def published() -> tuple[Published, ...]:
    return _rows(PUBLISHED, Published)


@cache
def measured() -> tuple[Measured, ...]:
    return read_measured(MEASURED)


def read_measured(path: Path) -> tuple[Measured, ...]:
    """The figures in a file of the form of measured.csv."""
    return _rows(path, Measured)


@cache
def precisions() -> tuple[Precision, ...]:
    return _rows(PRECISION, Precision)


@cache
def costs() -> tuple[Cost, ...]:
    return _rows(COSTS, Cost)


def proxy_of(text: str) -> str:
    """The name in `zico(batches=4)`."""
    match = re.match(r"\w+", text)
    return match[0] if match else ""


def _rows(path: Path, kind: type[T]) -> tuple[T, ...]:
    """The rows of a table as objects, with numbers where their fields are numbers."""
    kinds = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(kind(**{name: kinds[name](cell) for name, cell in row.items()}) for row in rows)
