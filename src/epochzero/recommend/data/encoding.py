"""The encoding of a table: its schema, the rows of its embedding tables and its vocabularies.

Kept as a small JSON file with a trained model, so that other tables are read in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError
from epochzero.recommend.data.census import Usual, unpacked
from epochzero.recommend.data.schema import Schema

FORMAT = 2
"""of the file, and of the way in which values are read"""
UNSEEN, FIRST_VALUE = 1, 2
"""rows of a vocabulary's table; row 0 is for missing values"""


@dataclass(frozen=True)
class Encoding:
    """The way from texts to numbers."""

    schema: Schema
    full: tuple[int, ...]
    """number of ids of each categorical column"""
    vocabulary: Mapping[str, list[str]] = field(default_factory=dict)
    """by column, the values in the order of their rows"""
    folded_to: tuple[int, ...] = ()
    """rows of smaller embedding tables, if memory is short"""
    seen: Mapping[str, str] = field(default_factory=dict)
    """by hashed column, the rows that training rows have, packed"""
    usual: Mapping[str, Usual] = field(default_factory=dict)
    """by column, the shares of missing and of unseen values to expect"""

    @property
    def num_dense(self) -> int:
        """The number of dense columns; a column of zeros replaces missing ones, as in NASRec."""
        return max(1, len(self.schema.dense))

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of each embedding table."""
        return self.folded_to or self.full

    def capped(self, rows: Sequence[int]) -> Encoding:
        """The same encoding for embedding tables of at most these rows, column by column."""
        if len(rows) != len(self.full) or min(rows, default=1) < 1:
            raise UserError(
                f"There are {len(self.full)} categorical columns: give each table at least 1 row, not {rows}."
            )
        return replace(self, folded_to=tuple(map(min, rows, self.full)))

    def folded(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ids [N, F] within the tables: 0 stays 0, and i > 0 becomes 1 + (i - 1) mod (n - 1) in a table of n rows."""
        if self.rows == self.full:
            return ids
        rows = np.array(self.rows, np.int32)
        return np.minimum(np.where(ids > 0, (ids - 1) % np.maximum(rows - 1, 1) + 1, 0), rows - 1)

    @cached_property
    def codes(self) -> dict[str, dict[str, int]]:
        """By column and value, the row."""
        return {
            name: dict(zip(known, range(FIRST_VALUE, FIRST_VALUE + len(known)), strict=True))
            for name, known in self.vocabulary.items()
        }

    @cached_property
    def seen_rows(self) -> dict[str, NDArray[np.bool_]]:
        """By hashed column, whether a training row has a row [n]."""
        sizes = {column.name: size for column, size in zip(self.schema.categorical, self.full, strict=True)}
        return {name: unpacked(text, sizes[name]) for name, text in self.seen.items()}

    def text(self) -> str:
        content = {"format": FORMAT, **{field.name: getattr(self, field.name) for field in fields(self)}}
        return json.dumps(content | {"schema": self.schema.json()})

    @classmethod
    def read(cls, path: str | Path) -> Encoding:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            known = content["format"] == FORMAT
            schema, full, folded_to = (content[key] for key in ("schema", "full", "folded_to"))
            usual = {name: (float(missing), float(unseen)) for name, (missing, unseen) in content["usual"].items()}
            read = Schema.of(schema, "table"), tuple(full), dict(content["vocabulary"]), tuple(folded_to)
            encoding = cls(*read, dict(content["seen"]), usual)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path} is not the encoding of a table ({str(error)[:200]}): write it again.") from error
        lists = list(encoding.vocabulary.values())
        if (
            not known
            or not len(encoding.rows) == len(encoding.full) == len(encoding.schema.categorical)
            or not all(type(size) is int and 0 < size < 2**31 for size in (*encoding.full, *encoding.folded_to))
            or set(encoding.vocabulary) != {c.name for c in encoding.schema.categorical if c.encoding == "vocabulary"}
            or not all(type(values) is list and {*map(type, values)} <= {str} for values in lists)
            or not set(encoding.seen) <= {c.name for c in encoding.schema.categorical if c.encoding != "vocabulary"}
            or not all(type(text) is str for text in encoding.seen.values())
        ):
            raise DataError(f"{path} is of another version or damaged: write it again.")
        return encoding
