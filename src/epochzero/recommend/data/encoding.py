"""How a table was turned into numbers: its schema, the rows of its embedding tables and its vocabularies.

This is what a trained model has to be kept with, to read other tables as it read its own: one small JSON file.
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
from epochzero.recommend.data.schema import Schema

FORMAT = 1
UNSEEN, FIRST_VALUE = 1, 2
"""rows of a vocabulary's table; row 0 is for missing values"""


@dataclass(frozen=True)
class Encoding:
    """From texts to numbers."""

    schema: Schema
    full: tuple[int, ...]
    """how many ids each categorical column has"""
    vocabulary: Mapping[str, list[str]] = field(default_factory=dict)
    """of the columns that have one, the values in the order of their rows"""
    folded_to: tuple[int, ...] = ()
    """the rows of smaller tables that the ids are brought into, where memory is short"""

    @property
    def num_dense(self) -> int:
        """One column of zeros stands in where the schema has no dense column, as in NASRec."""
        return max(1, len(self.schema.dense))

    @property
    def rows(self) -> tuple[int, ...]:
        """Of each categorical column's embedding table."""
        return self.folded_to or self.full

    def capped(self, rows: Sequence[int]) -> Encoding:
        """The same for embedding tables of at most so many rows, column by column."""
        if len(rows) != len(self.full) or min(rows, default=1) < 1:
            raise UserError(
                f"There are {len(self.full)} categorical columns: give each table at least 1 row, not {rows}."
            )
        return replace(self, folded_to=tuple(map(min, rows, self.full)))

    def folded(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ids [N, F] within the tables: 0 stays 0, id i > 0 of a table of n rows becomes 1 + (i - 1) mod (n - 1)."""
        if self.rows == self.full:
            return ids
        rows = np.array(self.rows, np.int32)
        return np.minimum(np.where(ids > 0, (ids - 1) % np.maximum(rows - 1, 1) + 1, 0), rows - 1)

    @cached_property
    def codes(self) -> dict[str, dict[str, int]]:
        """A value's row by column and value."""
        return {
            name: dict(zip(known, range(FIRST_VALUE, FIRST_VALUE + len(known)), strict=True))
            for name, known in self.vocabulary.items()
        }

    def text(self) -> str:
        """As JSON."""
        content = {"format": FORMAT, **{field.name: getattr(self, field.name) for field in fields(self)}}
        return json.dumps(content | {"schema": self.schema.json()})

    def write(self, path: str | Path) -> None:
        try:
            Path(path).write_text(self.text(), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror}): choose another place.") from error

    @classmethod
    def read(cls, path: str | Path) -> Encoding:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            known = content["format"] == FORMAT
            schema, full, folded_to = (content[key] for key in ("schema", "full", "folded_to"))
            found = cls(Schema.of(schema, "table"), tuple(full), dict(content["vocabulary"]), tuple(folded_to))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} does not say how a table was encoded ({error}): write it again.") from error
        if not known or not len(found.rows) == len(found.full) == len(found.schema.categorical):
            raise DataError(f"{path} is of another version or damaged: write it again.")
        return found
