"""Scores that were measured elsewhere, from the files that `export` writes into a store."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, get_args

from epochzero.errors import DataError, UserError, needed
from epochzero.store.sqlite import ScoreRow, Store
from epochzero.types import Status

ENDINGS = (".csv", ".csv.gz", ".parquet")
UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)


def add(store: Store, path: str | Path) -> int:
    """Adds the scores of a file, or of every such file in a folder, and returns the number of new ones.

    A file is added completely or, if a row cannot be read, not at all. In a folder, files without the columns of
    `export` are skipped.
    """
    path = Path(path)
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if is_export(file)]
        if not files:
            raise UserError(f"The folder '{path}' has no file of scores, with columns {', '.join(ScoreRow._fields)}.")
        return sum(store.add_scores(read_scores(file)) for file in files)
    if not path.is_file():
        raise UserError(f"There is no file or folder '{path}' to read scores from.")
    if not _ending(path):
        raise UserError(f"'{path}' is not a file of scores: its name should end in {', '.join(ENDINGS)}.")
    columns = columns_of(path)
    if lacking := ", ".join(name for name in ScoreRow._fields if name not in columns):
        raise DataError(f"'{path}' has no column {lacking}: give a file that `epochzero store --to` wrote.")
    return store.add_scores(read_scores(path))


def is_export(path: Path) -> bool:
    """Returns True for a file with the columns of `export`."""
    return bool(_ending(path)) and set(ScoreRow._fields) <= set(columns_of(path))


def _ending(path: Path) -> str | None:
    return next((ending for ending in ENDINGS if path.name.lower().endswith(ending)), None)


def columns_of(path: Path) -> list[str]:
    """Returns the names of a file's columns."""
    if _ending(path) == ".parquet":
        return [str(name) for name in _parquet(path).schema_arrow.names]
    try:
        with _text(path) as file:
            return next(csv.reader(file), [])
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_scores(path: Path) -> Iterator[ScoreRow]:
    """Yields the scores of a file that `export` wrote."""
    try:
        for number, row in enumerate(_rows(path), start=1):
            try:
                score = _score(row)
            except (ValueError, TypeError) as error:
                raise DataError(f"Row {number} of '{path}' is not a score ({error}). Nothing was added.") from error
            yield score
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if _ending(path) == ".parquet":
        import pyarrow

        try:
            for group in _parquet(path).iter_batches(columns=list(ScoreRow._fields)):
                yield from group.to_pylist()
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise _unreadable(path, error) from error
        return
    with _text(path) as file:
        yield from csv.DictReader(file)


def _text(path: Path) -> AbstractContextManager[IO[str]]:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    text: AbstractContextManager[IO[str]] = opened(path, "rt", encoding="utf-8", newline="")
    return text


def _score(row: Mapping[str, Any]) -> ScoreRow:
    """Returns a checked row: a store holds a number if and only if the status is ok."""
    if lacking := [name for name in ("space", "arch", "proxy", "batch", "origin") if not row[name]]:
        raise ValueError(f"no {lacking[0]}")
    status = row["status"]
    if status not in get_args(Status):
        raise ValueError(f"status {status!r}")
    value = float(row["value"]) if status == "ok" else None
    if value is not None and math.isnan(value):
        raise ValueError("ok, but not a number")
    names = (row["space"], row["arch"], row["proxy"], row["batch"], row["origin"])
    return ScoreRow(*names, value, status, row["why"] or "", float(row["seconds"] or 0))


def _parquet(path: Path) -> Any:
    needed("pyarrow", "A Parquet file", "parquet")
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        file.schema_arrow.names  # noqa: B018  (are they text?)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error
    return file


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"'{path}' is not a complete file of scores ({reason}). Nothing was added.")
