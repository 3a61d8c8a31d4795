"""A table of text, plain or gzipped, as blocks of whole lines that know their numbers: memory stays bounded."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epochzero.errors import DataError
from epochzero.recommend.data.schema import Schema
from epochzero.registry import near_miss

BLOCK_BYTES = 1 << 23
LONGEST_LINE = 1 << 26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Some whole lines, each with its line break."""

    first: int
    """the number of the first line in the file, counted from 1"""
    data: bytes


@dataclass(frozen=True)
class Layout:
    """How the lines of a file are to be read."""

    path: Path
    columns: tuple[str, ...]
    """the names of all columns of the file, in order"""
    separator: str
    header: bool
    labelled: bool
    """whether the label is among the columns"""


def fields_of(line: str, separator: str) -> list[str]:
    """The fields of one line; quotes may protect separators, not line breaks."""
    if '"' not in line:
        return line.split(separator)
    return next(csv.reader([line], delimiter=separator, strict=True))


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where it is gzipped."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"The table {path} cannot be opened ({error.strerror}): check its name and place.") from error
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file in order, `size` bytes or so at a time, cut at line breaks, which become plain ones."""
    number = 1
    with opened(path) as file:
        while True:
            try:
                data = file.read(size)
                data += file.readline(LONGEST_LINE) if data else b""
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(
                    f"The table {path} cannot be read on after line {number - 1:,} ({error}): fetch it again."
                ) from error
            if not data:
                return
            if len(data) >= size + LONGEST_LINE:
                raise DataError(f"A line of {path} after line {number:,} is longer than 64 MB: is it a table of text?")
            block = Block(number, _plain(data, first=number == 1))
            yield block
            number += block.data.count(b"\n")


def _plain(data: bytes, first: bool) -> bytes:
    """The lines without a byte order mark and carriage returns, the last with its line break too."""
    data = data.removeprefix(BYTE_ORDER_MARK) if first else data
    data = data.replace(b"\r\n", b"\n") if b"\r" in data else data
    return data if data.endswith(b"\n") else data + b"\n"


def layout(path: Path, schema: Schema, *, need_label: bool = True) -> Layout:
    """What the first line says about the columns; one sentence where the schema does not fit the file."""
    start = next((block.data for block in blocks(path, 1 << 16)), b"").split(b"\n")[:-1]
    first = start[0] if start else b""
    if not first.strip():
        raise DataError(f"The table {path} is empty, or begins with an empty line: give a table with rows.")
    try:
        text = first.decode()
        separator = schema.separator or next((mark for mark in "\t,;" if mark in text), ",")
        fields = fields_of(text, separator)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"Line 1 of {path} is no text that can be taken apart ({error}): is it a table?") from error
    wanted = [*schema.features, *([schema.label] if need_label else []), *([schema.split] if schema.split else [])]
    header = not schema.columns or any(name in fields for name in schema.features)
    columns = tuple(fields) if header else _unnamed(path, schema, start, separator, need_label)
    for name in wanted:
        if name not in columns:
            shown = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
            raise DataError(
                f"The schema '{schema.name}' does not fit {path}: there is no column '{name}'."
                f"{near_miss(name, list(columns))} The columns are {shown}."
            )
        if columns.count(name) > 1:
            raise DataError(f"The table {path} has two columns called '{name}': rename one of them.")
    return Layout(path, _distinct(columns), separator, header, schema.label in columns)


def _unnamed(path: Path, schema: Schema, start: list[bytes], separator: str, need_label: bool) -> tuple[str, ...]:
    """The columns of a file without a line of names; one that is only to be predicted may lack the label."""
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
    """Columns that nobody reads may share a name in the file."""
    return tuple(name if columns.index(name) == place else f"{name}#{place}" for place, name in enumerate(columns))
