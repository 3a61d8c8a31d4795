"""A block of lines one by one, where not all of them are as they should be: what is good, what is bad and why."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from epochzero.recommend.data.lines import Block, Layout, fields_of
from epochzero.recommend.data.schema import Schema

LARGEST = float(np.finfo(np.float32).max)
HEX = re.compile(r"\+?[0-9a-fA-F]{1,16}")

Reader = Callable[[str], Any]
"""The value of a text, None where it is missing; a ValueError says what is wrong with it."""


class BadLine(NamedTuple):
    """A line that cannot be used."""

    number: int
    why: str
    """goes on where `Line 7` stops"""
    text: str


class Lines(NamedTuple):
    """The lines of a block, sorted out."""

    columns: dict[str, list[Any]]
    """the values of the good lines by column"""
    numbers: list[int]
    """of the good lines"""
    bad: list[BadLine]


def line_by_line(block: Block, schema: Schema, layout: Layout) -> Lines:
    """Good and bad lines. Empty lines hold nothing and are passed over."""
    readers = _readers(schema, layout)
    rows, numbers, bad = [], [], []
    for number, line in enumerate(block.data.split(b"\n")[:-1], block.first):
        if not line.strip():
            continue
        try:
            fields = fields_of(line.decode(), layout.separator)
            _check_count(len(fields), len(layout.columns))
            given = dict(zip(layout.columns, fields, strict=True))
            rows.append([read(given[name]) for name, read in readers.items()])
            numbers.append(number)
        except UnicodeDecodeError:
            bad.append(BadLine(number, "is no UTF-8 text", line.decode(errors="replace")))
        except csv.Error as error:
            bad.append(BadLine(number, f"has quotes that do not match ({error})", line.decode()))
        except ValueError as error:
            bad.append(BadLine(number, str(error), line.decode()))
    columns = zip(*rows, strict=True) if rows else [()] * len(readers)
    return Lines({name: list(values) for name, values in zip(readers, columns, strict=True)}, numbers, bad)


def _check_count(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"has {found} {'column' if found == 1 else 'columns'} where {wanted} should be")


def _readers(schema: Schema, layout: Layout) -> dict[str, Reader]:
    """How to read one value of each column that is wanted."""
    missing = {"", *schema.missing}

    def number(name: str) -> Reader:
        def read(text: str) -> float | None:
            if text in missing:
                return None
            try:
                value = float(text.replace("_", "?"))
            except ValueError:
                raise ValueError(f"has {text[:40]!r} in the column '{name}', where a number should be") from None
            if not math.isfinite(value) or abs(value) > LARGEST:
                raise ValueError(f"has {text[:40]!r} in the column '{name}', which is no finite number")
            return value

        return read

    def label(text: str) -> float:
        value: float | None = number(schema.label)(text)
        if value is None or value < 0 or (value not in (0, 1) and not schema.click_counts):
            wanted = "the number of clicks" if schema.click_counts else "0 or 1"
            raise ValueError(f"has the label {text[:40]!r}, where {wanted} should be")
        return value

    def hexadecimal(name: str) -> Reader:
        def read(text: str) -> int | None:
            if text in missing:
                return None
            if not HEX.fullmatch(text):
                raise ValueError(f"has {text[:40]!r} in the column '{name}', where a hexadecimal number should be")
            return int(text, 16)

        return read

    def words(text: str) -> str | None:
        return None if text in missing else text

    readers: dict[str, Reader] = {column.name: number(column.name) for column in schema.dense}
    for column in schema.categorical:
        readers[column.name] = hexadecimal(column.name) if column.encoding == "hex" else words
    if layout.labelled:
        readers[schema.label] = label
    if schema.split:
        readers[schema.split] = words
    return readers
