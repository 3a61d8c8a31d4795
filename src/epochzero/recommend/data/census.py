"""Counts by column: missing and unseen values, and values written in more than one way.

A whole number written `266.0`, as data frames write a column of ids with a missing one, is the value `266` of a column
of texts, in training and prediction alike. A text such as `nan` is a value unless the schema names it as `missing`; it
is counted. A value is unseen if the vocabulary lacks it, or, of a hashed column, if no training row has its row.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError

if TYPE_CHECKING:
    import polars as pl

WHOLE = r"^(0|-?[1-9][0-9]*)\.0+$"
MISSING_TEXTS = ("nan", "NaN", "NAN", "null", "NULL", "Null", "none", "None", "NONE", "NA", "N/A", "n/a", "<NA>", "?")
FEW = 10
"""rows from which on a table without a single known value is refused"""


@dataclass
class Census:
    """Counts of the rows of a column."""

    missing: int = 0
    unseen: int = 0
    example: str = ""
    """an unseen value"""
    rewritten: int = 0
    """whole numbers written like 266.0"""
    like_missing: int = 0
    """texts such as nan, read as values"""
    text: str = ""
    """one of them"""

    def add(self, more: Census) -> None:
        for one in fields(self):
            mine, other = getattr(self, one.name), getattr(more, one.name)
            setattr(self, one.name, mine + other if isinstance(mine, int) else mine or other)


Usual = tuple[float, float]
"""the shares of missing values in the table of the training, and of unseen ones in its rows besides those"""


def read_values(column: pl.Series) -> tuple[pl.Series, Census]:
    """The values of a column of texts, and what is to be said of them."""
    census = Census(missing=column.null_count())
    like = column.is_in(MISSING_TEXTS)
    if count := int(like.sum()):
        census.like_missing, census.text = count, str(column.filter(like)[0])
    if column.str.contains(".0", literal=True).any():
        values = column.str.replace(WHOLE, "$1")
        census.rewritten = int((values != column).sum())
        return values, census
    return column, census


def unseen_rows(rows: NDArray[np.int32], texts: pl.Series, seen: NDArray[np.bool_]) -> Census:
    """The census of a hashed column, by its rows [N] in a table, and whether a training row has them [n]."""
    new = np.flatnonzero(~seen[rows])
    return Census(unseen=len(new), example=str(texts[int(new[0])]) if len(new) else "")


def packed(seen: NDArray[np.bool_]) -> str:
    return base64.b64encode(zlib.compress(np.packbits(seen).tobytes(), 9)).decode()


def unpacked(text: str, rows: int) -> NDArray[np.bool_]:
    """[rows] from the text of `packed`; row 0, of missing values, always counts as seen."""
    size = -(-rows // 8)
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size)
    except (ValueError, zlib.error) as error:
        raise DataError(f"The rows that a training named cannot be read ({error}): train again.") from error
    if len(data) != size:
        raise DataError("The rows that a training named are cut short: train again.")
    seen = np.unpackbits(np.frombuffer(data, np.uint8), count=rows).astype(bool)
    seen[0] = True
    return seen


def limit(usual: float) -> float:
    """The share from which on there is a warning: twice the usual one and a tenth, or halfway from it to 1."""
    return min(2 * usual + 0.1, (1 + usual) / 2)


def surprises(counts: Mapping[str, Census], rows: int, usual: Mapping[str, Usual]) -> Iterator[str]:
    """Sentences on a file to predict: columns with many more missing or unseen values than the training's table."""
    for name, census in counts.items():
        missing, unseen = usual.get(name, (0.0, 0.0))
        if rows and census.unseen / rows > limit(unseen):
            hint = (
                ' It looks like a missing value: name it under "missing" in the schema, and train again.'
                if census.example in MISSING_TEXTS
                else ""
            )
            yield (
                f"The column '{name}' has values that the training did not see in {_of(census.unseen, rows)}, such as "
                f"'{census.example[:40]}'; on the training's table {unseen:.1%}.{hint}"
            )
        if rows and census.missing / rows > limit(missing):
            yield (
                f"The column '{name}' is missing in {_of(census.missing, rows)}; in the training's table {missing:.1%}."
            )
        if census.rewritten:
            yield _rewritten(name, census, rows)


def remarks_on(counts: Mapping[str, Census], rows: int) -> Iterator[str]:
    """Sentences on the table of a training."""
    empty = [f"{name} ({census.missing / rows:.0%})" for name, census in counts.items() if 2 * census.missing >= rows]
    if empty:
        columns = "The column is" if len(empty) == 1 else f"{len(empty)} columns are"
        yield f"{columns} missing in half of the rows or more: {', '.join(empty)}."
    for name, census in counts.items():
        if census.like_missing:
            yield (
                f"The column '{name}' has the text '{census.text}' in {_of(census.like_missing, rows)}, read as a "
                f'value of its own: if it means a missing value, put "missing": ["{census.text}"] into the schema.'
            )
        if census.rewritten:
            yield _rewritten(name, census, rows)


def _rewritten(name: str, census: Census, rows: int) -> str:
    return f"The column '{name}' has whole numbers written like 266.0 in {_of(census.rewritten, rows)}, read as 266."


def check_known_values(counts: Mapping[str, Census], categorical: Iterable[str], rows: int, path: object) -> None:
    """DataError if no row has a value that the training saw: all predictions would be guesses without a category."""
    columns = [(name, counts[name]) for name in categorical if name in counts]
    new = [(name, census) for name, census in columns if census.unseen]
    if rows >= FEW and new and all(census.unseen + census.missing == rows for _, census in columns):
        name, census = new[0]
        raise DataError(
            f"No row of {path} has a category that the training saw; the column '{name}' has '{census.example[:40]}', "
            "for example: write the values as the table of the training has them."
        )


def _of(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} rows ({count / rows:.1%})"
