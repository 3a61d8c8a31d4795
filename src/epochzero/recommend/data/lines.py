"""Tables of text, plain or gzipped, as blocks of whole numbered lines, and a parser of single lines."""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from epochzero.errors import DataError
from epochzero.recommend.data.schema import Schema
from epochzero.registry import near_miss

BLOCK_BYTES = 1 << 23
LONGEST_LINE = 1 << 26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LARGEST = float(np.finfo(np.float32).max)
HEX = re.compile(r"\+?[0-9a-fA-F]{1,16}")

Reader = Callable[[str], Any]
"""Converts a text, None for a missing value; a ValueError says what is wrong with it."""


@dataclass(frozen=True)
class Block:
    """Whole lines, each with its line break."""

    first: int
    """the number of the first line in the file, counted from 1"""
    data: bytes


@dataclass(frozen=True)
class Layout:
    """The format of a file."""

    path: Path
    columns: tuple[str, ...]
    """the names of all columns of the file, in order"""
    separator: str
    header: bool
    labelled: bool
    """true if one of the columns is the label"""
    parquet: bool = False


def fields_of(line: str, separator: str) -> list[str]:
    """The fields of one line. Quotes protect separators, but not line breaks."""
    if '"' not in line:
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator, strict=True))


def opened(path: Path) -> IO[bytes]:
    """Opens a file, unpacked if it is gzipped."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"The table {path} cannot be opened ({error.strerror}): check its name and place.") from error
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file in blocks of about `size` bytes, cut at line breaks."""
    number = 1
    with opened(path) as file:
        while True:
            try:
                data = file.read(size)
                data += file.readline(LONGEST_LINE) if data else b""
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(
                    f"The table {path} cannot be read after line {number - 1:,} ({error}): fetch it again."
                ) from error
            if not data:
                return
            if len(data) >= size + LONGEST_LINE:
                raise DataError(f"A line of {path} after line {number:,} is longer than 64 MB: is it a table of text?")
            block = Block(number, _normalised(data, first=number == 1))
            yield block
            number += block.data.count(b"\n")


def _normalised(data: bytes, first: bool) -> bytes:
    """The lines without byte order mark and carriage returns; the last gets a line break too."""
    data = data.removeprefix(BYTE_ORDER_MARK) if first else data
    data = data.replace(b"\r\n", b"\n") if b"\r" in data else data
    return data if data.endswith(b"\n") else data + b"\n"


def layout(path: Path, schema: Schema, *, need_label: bool = True) -> Layout:
    """The format of a file, from its first line; DataError if the schema does not fit."""
    start = next((block.data for block in blocks(path, 1 << 16)), b"").split(b"\n")[:-1]
    first = start[0] if start else b""
    if not first.strip():
        raise DataError(f"The table {path} is empty, or begins with an empty line: give a table with rows.")
    try:
        text = first.decode()
        separator = schema.separator or next((mark for mark in "\t,;" if mark in text), ",")
        fields = fields_of(text, separator)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"Line 1 of {path} cannot be split into columns ({error}): is it a table?") from error
    header = not schema.columns or any(name in fields for name in schema.features)
    columns = tuple(fields) if header else _unnamed(path, schema, start, separator, need_label)
    check_columns(columns, schema, path, need_label)
    return Layout(path, _distinct(columns), separator, header, schema.label in columns)


def check_columns(columns: Sequence[str], schema: Schema, path: Path, need_label: bool) -> None:
    """DataError if a column of the schema is not among these, or twice."""
    wanted = [*schema.features, *([schema.label] if need_label else []), *([schema.split] if schema.split else [])]
    for name in wanted:
        if name not in columns:
            shown = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
            raise DataError(
                f"The schema '{schema.name}' does not fit {path}: there is no column '{name}'."
                f"{near_miss(name, list(columns))} The columns are {shown}."
            )
        if columns.count(name) > 1:
            raise DataError(f"The table {path} has two columns called '{name}': rename one of them.")


def _unnamed(path: Path, schema: Schema, start: list[bytes], separator: str, need_label: bool) -> tuple[str, ...]:
    """The columns of a file without a header. A file to predict may lack the label."""
    counts = Counter(line.count(separator.encode()) + 1 for line in start if line.strip())
    wanted = len(schema.columns)
    if wanted in counts:
        return schema.columns
    if not need_label and wanted - 1 in counts:
        return tuple(name for name in schema.columns if name != schema.label)
    raise DataError(
        f"The schema '{schema.name}' does not fit {path}: it has {wanted} columns, and the lines of the file have "
        f"{counts.most_common(1)[0][0]} (separated by {separator!r}); choose another schema or name its separator."
    )


def _distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Unused columns may share a name in the file: the later ones get a number."""
    return tuple(name if columns.index(name) == place else f"{name}#{place}" for place, name in enumerate(columns))


# Line by line


class BadLine(NamedTuple):
    """A line that cannot be used, and the reason."""

    number: int
    why: str
    """the rest of the sentence that begins with `Line 7`"""
    text: str


class Lines(NamedTuple):
    """The good and the bad lines of a block."""

    columns: dict[str, list[Any]]
    """by column, the values of the good lines"""
    numbers: list[int]
    """line numbers of the good lines"""
    bad: list[BadLine]


def line_by_line(block: Block, schema: Schema, layout: Layout) -> Lines:
    """Parses a block line by line. Empty lines are skipped."""
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
            bad.append(BadLine(number, "is not UTF-8 text", line.decode(errors="replace")))
        except csv.Error as error:
            bad.append(BadLine(number, f"has quotes that do not match ({error})", line.decode()))
        except ValueError as error:
            bad.append(BadLine(number, str(error), line.decode()))
    columns = zip(*rows, strict=True) if rows else [()] * len(readers)
    return Lines({name: list(values) for name, values in zip(readers, columns, strict=True)}, numbers, bad)


def _check_count(count: int, expected: int) -> None:
    if count != expected:
        raise ValueError(f"has {count} {'column' if count == 1 else 'columns'} where {expected} should be")


def _readers(schema: Schema, layout: Layout) -> dict[str, Reader]:
    """A reader for each column of the schema."""
    missing = {"", *schema.missing}

    def optional(read: Reader) -> Reader:
        return lambda text: None if text in missing else read(text)

    def number(name: str) -> Reader:
        def read(text: str) -> float:
            try:
                value = float(text.replace("_", "?"))
            except ValueError:
                raise ValueError(f"has {text[:40]!r} in the column '{name}', where a number should be") from None
            if not math.isfinite(value) or abs(value) > LARGEST:
                raise ValueError(f"has {text[:40]!r} in the column '{name}', which is not a finite number")
            return value

        return optional(read)

    def label(text: str) -> float:
        value: float | None = number(schema.label)(text)
        if value is None or value < 0 or (value not in (0, 1) and not schema.click_counts):
            expected = "the number of clicks" if schema.click_counts else "0 or 1"
            raise ValueError(f"has the label {text[:40]!r}, where {expected} should be")
        return value

    def hexadecimal(name: str) -> Reader:
        def read(text: str) -> int:
            if not HEX.fullmatch(text):
                raise ValueError(f"has {text[:40]!r} in the column '{name}', where a hexadecimal number should be")
            return int(text, 16)

        return optional(read)

    readers: dict[str, Reader] = {column.name: number(column.name) for column in schema.dense}
    for column in schema.categorical:
        readers[column.name] = hexadecimal(column.name) if column.encoding == "hex" else optional(str)
    if layout.labelled:
        readers[schema.label] = label
    if schema.split:
        readers[schema.split] = optional(str)
    return readers
