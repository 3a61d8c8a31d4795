"""CSV and Parquet tables: a column with the architectures, and columns of numbers."""

from __future__ import annotations

import math

import numpy as np

from epochzero.errors import DataError
from epochzero.tables.columns import Column, Numbers, described
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Rows
from epochzero.tables.table import TABLES, AccuracyTable

EMPTY = ("", "na", "n/a", "none", "null")
"""cells of an unknown number, in addition to nan"""


def read(source: Source) -> Rows:
    """Returns the columns of numbers; columns without numbers are left out."""
    table = AccuracyTable.read(source.path)
    columns: dict[Column, Numbers] = {}
    texts = []
    for name in table.columns:
        cells = table.cells(name)
        numbers = np.array([_number(cell) for cell in cells], np.float64)
        odd = np.flatnonzero(np.isinf(numbers))
        if not np.isfinite(numbers).any():
            texts.append(name)
        elif len(odd):
            raise DataError(
                f"Column '{name}' of {source.path} holds '{cells[odd[0]]}' in row {odd[0] + 1}, where a finite number "
                f"is needed. Fix or remove such rows."
            )
        else:
            columns[described(name)] = numbers
    notes = [*table.notes, *([f"Columns without numbers are left out: {', '.join(texts)}."] if texts else [])]
    return Rows(table.archs, columns, str(source.path), notes=notes)


def _number(cell: object) -> float:
    """A finite number, nan for an empty cell, inf for anything else."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        empty = cell is None or str(cell).strip().lower() in EMPTY
        return math.nan if empty else math.inf


formats.register("spreadsheet", Format(f"a table ({', '.join(TABLES)})", lambda source: source.ends(*TABLES), read))
