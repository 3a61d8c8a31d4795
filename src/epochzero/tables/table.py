"""A table of trained networks: one row each, a column with the architecture's text, columns of numbers.

    table = AccuracyTable.read("nb201.csv.gz")
    table.column("cifar10_test")[table.sample(1000, seed=0)]

Files end in .csv, .csv.gz or .parquet, or in .ezb (`epochzero data import`). The architecture is in a column `arch_str`
(or `arch`, or `model` for published models by name), or in two that are joined to one text, `adjacency` and `ops`
(NAS-Bench-101). A column is checked and converted to numbers when it is first used, so that a column of text does no
harm to the others. Messages count rows from 1, without the header.

Rows that repeat an architecture, such as a second training of it, become one row with the means of their numbers and
the first one's texts; `notes` counts them.

A file with columns `arch`, `proxy` and `value`, one row per score, as `epochzero store export` writes it, becomes a
table with one column per proxy.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError
from epochzero.registry import near_miss

if TYPE_CHECKING:
    from epochzero.tables.tabular import TabularBenchmark

ARCH_COLUMNS = (("arch_str",), ("arch",), ("adjacency", "ops"), ("model",))
"""columns of the architecture; several columns are joined by spaces to one text"""

LONG = {"arch", "proxy", "value"}
"""columns of a table with one row per score"""
TABLES = (".csv", ".csv.gz", ".parquet")
ENDING = ".ezb"
"""ending of an imported benchmark"""

Cells = Mapping[str, Sequence[object] | NDArray[np.float64]]
"""column name to cells: text from CSV, values or None from Parquet, numbers from an import"""


class AccuracyTable:
    """Architectures, each once, with columns of data about them."""

    def __init__(
        self, archs: Sequence[str], cells: Cells, source: str = "the table", notes: Sequence[str] = ()
    ) -> None:
        self.archs = list(archs)
        self.source = source
        self.notes = list(notes)
        """sentences about rows that were joined"""
        self._cells = cells
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._row: dict[str, int] = {}
        for row, arch in enumerate(self.archs):
            first = self._row.setdefault(arch, row)
            if first != row:
                raise DataError(
                    f"Architecture '{arch}' is listed twice in {source} (rows {first + 1} and {row + 1}); "
                    f"keep one of them."
                )

    @classmethod
    def read(cls, path: str | Path) -> AccuracyTable:
        """Returns the table in a .csv, .csv.gz, .parquet or .ezb file."""
        path = Path(path)
        source = str(path)
        if path.name.lower().endswith(ENDING):
            from epochzero.tables.tabular import TabularBenchmark

            benchmark = TabularBenchmark.open(path)
            return cls(benchmark.archs, _Stored(benchmark), source)
        cells = _read_cells(path)
        cells = _by_proxy(cells, source) if cells.keys() >= LONG else cells
        names = next((names for names in ARCH_COLUMNS if all(name in cells for name in names)), None)
        if names is None:
            raise DataError(
                f"{source} has no column 'arch_str' or 'arch' with the architectures, nor both 'adjacency' and 'ops', "
                f"nor 'model'. Its columns: {', '.join(cells)}."
            )
        archs: list[str] = []
        for row, parts in enumerate(zip(*(cells[name] for name in names), strict=True)):
            for name, part in zip(names, parts, strict=True):
                if not isinstance(part, str) or not part.strip():
                    raise DataError(f"Row {row + 1} of {source} has no architecture text in column '{name}'.")
            archs.append(" ".join(str(part).strip() for part in parts))
        if not archs:
            raise DataError(f"{source} has a header but no rows.")
        own = {other: cells[other] for other in cells if other not in names}
        return cls(*_joined(archs, own), source, _repeats(archs))

    def __len__(self) -> int:
        return len(self.archs)

    @property
    def columns(self) -> list[str]:
        """The names of all columns except the architectures', including columns of text."""
        return list(self._cells)

    def column(self, name: str) -> NDArray[np.float64]:
        """Returns the numbers of a column, in the order of `archs` (read-only)."""
        if name not in self._numbers:
            self._numbers[name] = self._parse(name)
        return self._numbers[name]

    def cells(self, name: str) -> Sequence[object] | NDArray[np.float64]:
        """Returns a column as it was read."""
        if name not in self._cells:
            raise DataError(
                f"{self.source} has no column '{name}'.{near_miss(name, self.columns)} "
                f"Its columns: {', '.join(self.columns)}."
            )
        return self._cells[name]

    def _parse(self, name: str) -> NDArray[np.float64]:
        cells = self.cells(name)
        numbers = cells if isinstance(cells, np.ndarray) else np.array([as_number(cell) for cell in cells], np.float64)
        if not np.isfinite(numbers).all():
            bad = np.flatnonzero(~np.isfinite(numbers))
            more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
            raise DataError(
                f"Column '{name}' of {self.source} holds {_shown(cells[bad[0]])} in row "
                f"{bad[0] + 1}{more}, where a finite number is needed. Fix or remove such rows."
            )
        numbers.setflags(write=False)
        return numbers

    def lookup(self, arch: str, column: str) -> float:
        """Returns the value of one architecture in a column."""
        numbers = self.column(column)
        if arch not in self._row:
            raise DataError(f"{self.source} has no row for architecture '{arch}'.")
        return float(numbers[self._row[arch]])

    def sample(self, n: int, seed: int) -> list[int]:
        """Returns n distinct rows, drawn uniformly; with the same seed, a larger sample starts with a smaller one."""
        if not 1 <= n <= len(self):
            raise UserError(f"A sample of {self.source} has 1 to {len(self)} architectures, not {n}.")
        rows: list[int] = np.random.default_rng(seed).permutation(len(self))[:n].tolist()
        return rows


class _Stored(Mapping[str, NDArray[np.float64]]):
    """The columns of an imported benchmark and the means over runs, each read when it is used."""

    def __init__(self, benchmark: TabularBenchmark) -> None:
        self._benchmark = benchmark
        self._names = benchmark.names

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self._names:
            raise KeyError(name)
        return self._benchmark.column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _joined(archs: Sequence[str], cells: Cells) -> tuple[list[str], Cells]:
    """Returns each architecture once, with the means of its rows' numbers, or the first row's text."""
    rows: dict[str, list[int]] = {}
    for row, arch in enumerate(archs):
        rows.setdefault(arch, []).append(row)
    if len(rows) == len(archs):
        return list(archs), cells
    means = {name: [_mean([column[row] for row in own]) for own in rows.values()] for name, column in cells.items()}
    return list(rows), means


def _mean(cells: Sequence[object]) -> object:
    """Returns the mean of the known numbers; for texts, and for equal cells, the first."""
    known = [cell for cell in cells if cell not in (None, "")]
    numbers = [as_number(cell) for cell in known]
    if len(set(known)) < 2 or not all(map(math.isfinite, numbers)):
        return known[0] if known else cells[0]
    return math.fsum(numbers) / len(numbers)


def _repeats(archs: Sequence[str]) -> list[str]:
    """`4 of 2,569 rows repeat an architecture: its numbers are means over its rows.`"""
    more = len(archs) - len(set(archs))
    if not more:
        return []
    repeat = "repeats" if more == 1 else "repeat"
    return [f"{more:,} of {len(archs):,} rows {repeat} an architecture: its numbers are means over its rows."]


def as_number(cell: object) -> float:
    """Returns the cell as a number, nan if it is not a number."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _shown(cell: object) -> str:
    return "nothing" if cell is None or cell == "" else f"'{cell}'"


def _read_cells(path: Path) -> Cells:
    ending = next((ending for ending in TABLES if path.name.lower().endswith(ending)), None)
    if ending is None:
        raise DataError(
            f"{path} is not a readable table: its name must end in {', '.join((*TABLES, ENDING))}. "
            "`epochzero data import` turns other formats into .ezb."
        )
    reader = _read_parquet if ending == ".parquet" else _read_csv
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    try:
        names, columns = reader(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path} has more than one column called '{twice[0]}'.")
    return dict(zip(names, columns, strict=True))


def _by_proxy(cells: Cells, source: str) -> Cells:
    """Returns one row per architecture and one column per proxy; `reasons` explains the missing values."""
    by_arch: dict[str, dict[str, object]] = {}
    reasons: dict[str, dict[str, list[str]]] = {}
    nothing = [""] * len(cells["arch"])
    rows = zip(*(cells.get(name, nothing) for name in ("arch", "proxy", "value", "status", "why")), strict=True)
    for row, (arch, proxy, value, status, why) in enumerate(rows):
        scores = by_arch.setdefault(str(arch), {})
        if str(proxy) in scores:
            raise DataError(
                f"Row {row + 1} of {source} gives a second value of {proxy} for '{arch}'. Keep one of them."
            )
        scores[str(proxy)] = value
        if math.isnan(as_number(value)):
            reasons.setdefault(str(arch), {})[str(proxy)] = [str(status), str(why)]
    names = dict.fromkeys(name for scores in by_arch.values() for name in scores)
    columns: dict[str, Sequence[object]] = {"arch": list(by_arch)}
    columns |= {name: [scores.get(name) for scores in by_arch.values()] for name in names}
    return columns | {"reasons": [json.dumps(reasons[arch]) if arch in reasons else "" for arch in by_arch]}


def _read_csv(path: Path) -> tuple[list[str], list[Sequence[object]]]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not a CSV table: {error}.") from error
    if not rows:
        raise DataError(f"{path} is empty.")
    header, *body = rows
    for number, row in enumerate(body, start=1):
        if len(row) != len(header):
            raise DataError(f"Row {number} of {path} has {len(row)} cells where the header has {len(header)}.")
    columns: list[Sequence[object]] = list(zip(*body, strict=True)) if body else [()] * len(header)
    return [name.strip() for name in header], columns


def _read_parquet(path: Path) -> tuple[list[str], list[Sequence[object]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"Reading {path} needs pyarrow: pip install 'epochzero[parquet]'.") from error
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
        return list(table.column_names), [column.to_pylist() for column in table.columns]
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a Parquet table: {str(error)[:200]}.") from error
