"""Parquet files and folders of them, also partitioned ones (`day=3/part-0.parquet`), as blocks of typed columns.

Rows are numbered from 1, through all files in the order of their paths. Numbers need no parsing here: null and NaN are
missing values, a category may be text, a whole number or true and false, and a column of a partition is like any other.
A row with an infinite number, or without a label of 0 or 1, is bad, as a line of text is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, needed
from epochzero.recommend.data.lines import LARGEST, BadLine, Layout, check_columns
from epochzero.recommend.data.schema import Schema

if TYPE_CHECKING:
    import polars as pl

ROWS = 1 << 16
"""rows of a block"""
MAGIC = b"PAR1"


class Rows(NamedTuple):
    """Some rows of a table."""

    first: int
    """the number of the first one, counted from 1"""
    frame: pl.DataFrame


class Typed(NamedTuple):
    """Good rows as columns of the types that the encoder takes, bad ones, and the numbers of the good ones [N]."""

    frame: pl.DataFrame
    bad: list[BadLine]
    line: NDArray[np.int64]


def is_parquet(path: Path) -> bool:
    """True for a Parquet file, or a folder that holds one."""
    if path.is_dir():
        return next(path.rglob("*.parquet"), None) is not None
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def files(path: Path) -> list[Path]:
    """The files of a table, in order."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def scanned(path: Path) -> pl.LazyFrame:
    polars = needed("polars", "Reading tables", "ctr")
    frame: pl.LazyFrame = polars.scan_parquet(files(path), hive_partitioning=path.is_dir())
    return frame


def parquet_layout(path: Path, schema: Schema, *, need_label: bool = True) -> Layout:
    """The columns of a table; DataError if it is damaged, or the schema does not fit."""
    import polars as pl

    try:
        kinds = scanned(path).collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from error
    check_columns(list(kinds), schema, path, need_label)
    for name in schema.features:
        if kinds[name].is_nested():
            raise DataError(
                f"The column '{name}' of {path} holds lists or records, which cannot be read: make columns of single "
                "values from it."
            )
    return Layout(path, tuple(kinds), "", header=False, labelled=schema.label in kinds, parquet=True)


def row_blocks(layout: Layout, schema: Schema) -> Iterator[Rows]:
    """The rows of a table, with the columns of the schema alone."""
    import polars as pl

    wanted = [*schema.features, *([schema.label] if layout.labelled else []), *([schema.split] if schema.split else [])]
    first = 1
    try:
        batches = scanned(layout.path).select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True)
        for frame in batches:
            yield Rows(first, frame)
            first += len(frame)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(layout.path, error) from error


def typed(rows: Rows, schema: Schema, labelled: bool) -> Typed:
    """The rows with columns of numbers, hexadecimal numbers and texts."""
    import polars as pl

    frame, columns, wrong = rows.frame, dict[str, pl.Series](), dict[str, pl.Series]()
    for dense in schema.dense:
        values, odd = _number(frame[dense.name], schema)
        columns[dense.name], wrong[dense.name] = values, odd | (values.abs() > LARGEST).fill_null(value=False)
    for column in schema.categorical:
        columns[column.name] = texts = _text(frame[column.name], schema)
        if column.encoding == "hex":
            numbers = texts.str.to_integer(base=16, dtype=pl.UInt64, strict=False)
            columns[column.name], wrong[column.name] = numbers, numbers.is_null() & texts.is_not_null()
    if labelled:
        label, _ = _number(frame[schema.label], schema)
        right = label.is_between(0, LARGEST) if schema.click_counts else label.is_in([0.0, 1.0])
        columns[schema.label], wrong[schema.label] = label, ~right.fill_null(value=False)
    if schema.split:
        columns[schema.split] = _text(frame[schema.split], schema)
    made, line = pl.DataFrame(columns), np.arange(rows.first, rows.first + len(frame))
    bad = np.zeros(len(frame), bool)
    for flags in wrong.values():
        bad |= flags.to_numpy()
    places = np.flatnonzero(bad).tolist()
    named = [_bad(rows, place, next(name for name in wrong if wrong[name][place])) for place in places]
    return Typed(made.filter(pl.Series(~bad)) if places else made, named, line[~bad])


def spelt(row: dict[str, Any]) -> dict[str, str]:
    """The fields of a typed row as texts, as in a file of text; hexadecimal numbers come as integers."""
    return {
        name: "" if value is None else f"{value:x}" if isinstance(value, int) else str(value)
        for name, value in row.items()
    }


def _bad(rows: Rows, place: int, name: str) -> BadLine:
    value: Any = rows.frame[name][place]
    why = f"has {str(value)[:40]!r} in the column '{name}', which is not a value for it"
    return BadLine(rows.first + place, why, str(rows.frame.row(place))[:1000])


def _number(column: pl.Series, schema: Schema) -> tuple[pl.Series, pl.Series]:
    """The column as numbers, null where missing; and where it has something else."""
    import polars as pl

    given = _text(column, schema) if column.dtype == pl.String else column
    values = given.cast(pl.Float64, strict=False)
    return values.fill_nan(None), values.is_null() & given.is_not_null()


def _text(column: pl.Series, schema: Schema) -> pl.Series:
    """The column as texts, null where missing."""
    import polars as pl

    texts = (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String, strict=False)
    missing = ["", *schema.missing]
    return texts.set(texts.is_in(missing), None) if texts.is_in(missing).any() else texts


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"The table {path} cannot be read ({str(error).splitlines()[0][:200]}): fetch or write it again.")
