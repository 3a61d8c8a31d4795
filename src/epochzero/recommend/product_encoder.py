"""Turns rows of text into the numbers that a recommender reads. Needs numpy, and `encoding.json`.

    import encoder
    reads = encoder.Encoder("encoding.json")
    dense, ids = reads.rows([{"age": "31", "city": "Bern", "user": "u266"}])       # [B, D] float32, [B, F] int64

    python encoder.py new.csv rows.npz                                             # a CSV file with a header

A row is a dictionary by column; a column that is absent, None or empty is missing. ValueError names a value that is not
a number where one should be. This file is in the product of `epochzero recommend export`, which has checked it on rows
of yours against its own reading.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

UNSEEN, FIRST_VALUE = 1, 2
FACTOR = 0x9E3779B97F4A7C15
WHOLE = re.compile(r"(0|-?[1-9][0-9]*)\.0+")
HEX = re.compile(r"\+?[0-9a-fA-F]{1,16}")


class Encoder:
    """The encoding of a training."""

    def __init__(self, path: str | Path = Path(__file__).parent / "encoding.json") -> None:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        schema = content["schema"]
        self.missing = {"", *schema["missing"]}
        self.dense: list[dict[str, Any]] = schema["dense"]
        self.categorical: list[dict[str, Any]] = schema["categorical"]
        self.rows_of: list[int] = content["folded_to"] or content["full"]
        self.full: list[int] = content["full"]
        self.codes = {
            name: {value: row for row, value in enumerate(values, FIRST_VALUE)}
            for name, values in content["vocabulary"].items()
        }

    def rows(self, rows: Iterable[Mapping[str, str | None]]) -> tuple[Any, Any]:
        """The numbers of rows: dense [B, D] float32, ids [B, F] int64."""
        made = [self.row(row) for row in rows]
        dense = np.array([numbers for numbers, _ in made], np.float64).reshape(len(made), max(1, len(self.dense)))
        ids = np.array([places for _, places in made], np.int64).reshape(len(made), len(self.categorical))
        return dense.astype(np.float32), ids

    def row(self, row: Mapping[str, str | None]) -> tuple[list[float], list[int]]:
        """The numbers of one row."""
        numbers = [self._number(column, self._text(row, column["name"])) for column in self.dense]
        ids = [self._id(place, self._text(row, column["name"])) for place, column in enumerate(self.categorical)]
        return numbers or [0.0], ids

    def _text(self, row: Mapping[str, str | None], name: str) -> str | None:
        value = row.get(name)
        return None if value is None or value in self.missing else value

    def _number(self, column: Mapping[str, Any], text: str | None) -> float:
        try:
            value = float(column["fill"]) if text is None else float(text.replace("_", "?"))
        except ValueError:
            raise ValueError(f"{text!r} in the column {column['name']!r}, where a number should be") from None
        if not math.isfinite(value):
            raise ValueError(f"{text!r} in the column {column['name']!r}, which is not a finite number")
        return math.log1p(max(value, 0.0)) if column["transform"] == "log" else value

    def _id(self, place: int, text: str | None) -> int:
        """The row of the embedding table."""
        column, full, rows = self.categorical[place], self.full[place], self.rows_of[place]
        found = 0 if text is None else READERS[column["encoding"]](self, column, text)
        if rows < full and found:
            found = min(1 + (found - 1) % max(rows - 1, 1), rows - 1)
        return found

    def _by_vocabulary(self, column: Mapping[str, Any], text: str) -> int:
        return self.codes[column["name"]].get(plain(text), UNSEEN)

    def _by_hash(self, column: Mapping[str, Any], text: str) -> int:
        return 1 + hashed(plain(text)) % (int(column["rows"]) - 1)

    def _by_number(self, column: Mapping[str, Any], text: str) -> int:
        if not HEX.fullmatch(text):
            raise ValueError(f"{text!r} in the column {column['name']!r}, where a hexadecimal number should be")
        return 1 + int(text, 16) % (int(column["rows"]) - 1)


READERS: dict[str, Callable[[Encoder, Mapping[str, Any], str], int]] = {
    "vocabulary": Encoder._by_vocabulary,
    "hash": Encoder._by_hash,
    "hex": Encoder._by_number,
}


def plain(text: str) -> str:
    """A whole number without a point: 266 for 266.0; any other text as it is."""
    found = WHOLE.fullmatch(text)
    return found[1] if found else text


def hashed(text: str) -> int:
    """The hash of a text, 64 bits, the same on every machine."""
    data = text.encode()
    mixed = len(data)
    for first in range(0, len(data), 8):
        mixed = (mixed ^ int.from_bytes(data[first : first + 8], "big")) * FACTOR % 2**64
        mixed ^= mixed >> 32
    return mixed


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python encoder.py rows.csv rows.npz")
    with Path(sys.argv[1]).open(encoding="utf-8-sig", newline="") as file:
        try:
            dense, ids = Encoder().rows(csv.DictReader(file))
        except ValueError as error:
            sys.exit(f"error: {error}")
    np.savez(sys.argv[2], dense=dense, ids=ids)


if __name__ == "__main__":
    main()
