r"""A file of named arrays that is mapped into memory rather than read, so that benchmarks open quickly.

    8 bytes    EZBENCH and the number of the format, 1
    8 bytes    length of the header
    32 bytes   SHA-256 of the header
    header     JSON: facts about the content; name, type, place, size and SHA-256 of each section; then blanks
    sections   little-endian arrays, each filled up to a multiple of 64 bytes

Opening checks every checksum and refuses a file that was cut short or changed. The file holds no code. It appears under
its name only when it is complete.

Columns take the fewest bytes that keep every digit. A column with few different values, such as an accuracy on 10,000
images, is stored as the list of values (`values`) and an index of one or two bytes per row (`codes`); others as float32
if that is exact, else as float64 (`numbers`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError
from epochzero.files import replacing_output
from epochzero.tables.columns import Column, Numbers

MAGIC = b"EZBENCH"
VERSION = 1
START = 8 + 8 + 32
ALIGNED = 64
CHUNK = 1 << 20
CODES = (np.uint8, np.uint16)
TYPES = ("|u1", "<u2", "<u4", "<u8", "<f4", "<f8")

Sections = Mapping[str, NDArray[Any]]


def write(path: Path, about: Mapping[str, Any], sections: Sections) -> None:
    """Write the arrays, all or none."""
    listed, place = [], 0
    arrays = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in sections.items()}
    for name, array in arrays.items():
        digest = hashlib.sha256(_padded(array)).hexdigest()
        listed.append({"name": name, "type": array.dtype.str, "at": place, "bytes": array.nbytes, "sha256": digest})
        place = _aligned(place + array.nbytes)
    header = json.dumps({"about": about, "sections": listed}, ensure_ascii=False).encode()
    header = header.ljust(_aligned(START + len(header)) - START)
    with replacing_output(path) as file:
        file.write(MAGIC + bytes([VERSION]) + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest())
        file.write(header)
        for array in arrays.values():
            file.write(_padded(array))


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
    """Returns the facts about the content, the arrays (mapped, read-only) and the SHA-256 of the whole content."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    with path.open("rb") as file:
        size = path.stat().st_size
        start = file.read(START)
        if start[:7] != MAGIC or len(start) < START:
            raise DataError(f"{path} is not a benchmark file. Make one with epochzero data import.")
        if start[7] != VERSION:
            raise DataError(f"{path} has format {start[7]} and this version reads {VERSION}. Import the source again.")
        length = int.from_bytes(start[8:16], "little")
        header = file.read(min(length, size))
        if hashlib.sha256(header).digest() != start[16:]:
            raise _damaged(path, "its header does not match its checksum")
        try:
            described = json.loads(header)
            about = described["about"]
            places = [_place(section, START + length) for section in described["sections"]]
            end = max((at + _aligned(count) for _, _, at, count, _ in places), default=START + length)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _damaged(path, f"its header is invalid ({type(error).__name__}: {str(error)[:100]})") from error
        if size != end:
            raise _damaged(path, f"it has {size:,} bytes instead of {end:,}")
        for name, _, at, count, digest in places:
            if _digest(file, at, _aligned(count)) != digest:
                raise _damaged(path, f"its section '{name}' does not match its checksum")
        whole = np.memmap(file, np.uint8, "r")
    arrays = {name: np.asarray(whole[at : at + count]).view(kind) for name, kind, at, count, _ in places}
    return about, arrays, start[16:].hex()


def _place(section: Mapping[str, Any], begin: int) -> tuple[str, str, int, int, str]:
    name, kind, at, count, digest = (section[key] for key in ("name", "type", "at", "bytes", "sha256"))
    whole = type(name) is str and type(at) is type(count) is int
    if not whole or kind not in TYPES or at < 0 or at % ALIGNED or count < 0 or count % np.dtype(kind).itemsize:
        raise ValueError(f"section {name!r} is impossible")
    return name, kind, begin + at, count, digest


def _digest(file: IO[bytes], at: int, count: int) -> str:
    sha = hashlib.sha256()
    file.seek(at)
    while count > 0 and (chunk := file.read(min(CHUNK, count))):
        sha.update(chunk)
        count -= len(chunk)
    return sha.hexdigest()


def _padded(array: NDArray[Any]) -> bytes:
    content = array.tobytes()
    return content.ljust(_aligned(len(content)), b"\0")


def _aligned(place: int) -> int:
    return -(-place // ALIGNED) * ALIGNED


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged or was changed: {why}. Import the source again, or copy the file again.")


def encoded(columns: Mapping[Column, Numbers]) -> dict[str, NDArray[Any]]:
    """Returns the sections of the columns, numbered in order."""
    made: dict[str, NDArray[Any]] = {}
    for i, values in enumerate(columns.values()):
        ways: list[Sections] = [{f"numbers{i}": values}]
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if np.array_equal(single.astype(np.float64), values, equal_nan=True):
            ways.append({f"numbers{i}": single})
        distinct, codes = np.unique(values, return_inverse=True)
        kinds = [kind for kind in CODES if len(distinct) <= np.iinfo(kind).max + 1]
        ways += [{f"codes{i}": codes.astype(kind), f"values{i}": distinct} for kind in kinds[:1]]
        made |= sorted(ways, key=_size)[0]
    return made


def _size(sections: Sections) -> int:
    return sum(array.nbytes for array in sections.values())


def decoded(sections: Sections, number: int, rows: slice = slice(None)) -> Numbers:
    """Returns the numbers of a column, or of some of its rows."""
    if f"codes{number}" in sections:
        values: Numbers = sections[f"values{number}"][sections[f"codes{number}"][rows]]
        return values
    return sections[f"numbers{number}"][rows].astype(np.float64)
