"""Writes the scores of a store as one table: CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from gzip import GzipFile
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO

from epochzero.errors import UserError, needed
from epochzero.files import replacing_output
from epochzero.store.sqlite import ScoreRow, Store, separate

ROW_GROUP = 50_000  # rows in memory at a time while Parquet is written


def export(store: Store, path: str | Path) -> None:
    """Writes every score of `store` to `path`, row by row, in the format of its suffix.

    The columns are those of `ScoreRow`. CSV keeps every digit of a number and leaves missing ones empty. The file
    appears under its name only when it is complete.
    """
    path = Path(path)
    suffix = next((known for known in _WRITERS if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise UserError(f"'{path}' has no known format: let its name end in {', '.join(_WRITERS)}.")
    with replacing_output(separate(path, store.path, "scores")) as file:
        _WRITERS[suffix](file, store.all_scores())


def _write_csv(file: IO[bytes] | GzipFile, rows: Iterable[ScoreRow]) -> None:
    text = TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ScoreRow._fields)
    writer.writerows(rows)
    text.detach()


def _write_csv_gz(file: IO[bytes], rows: Iterable[ScoreRow]) -> None:
    # Without name and time, the same scores give the same bytes.
    with GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed:
        _write_csv(packed, rows)


def _write_parquet(file: IO[bytes], rows: Iterator[ScoreRow]) -> None:
    needed("pyarrow", "A Parquet file", "parquet")
    import pyarrow.parquet

    numbers = {"value", "seconds"}
    schema = pyarrow.schema(
        [(name, pyarrow.float64() if name in numbers else pyarrow.string()) for name in ScoreRow._fields]
    )
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(rows, ROW_GROUP)):
            columns = [
                pyarrow.array(column, kind) for column, kind in zip(zip(*group, strict=True), schema.types, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


_WRITERS = {".csv": _write_csv, ".csv.gz": _write_csv_gz, ".parquet": _write_parquet}
