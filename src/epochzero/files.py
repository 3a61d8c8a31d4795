"""Files that are written as a whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from epochzero.errors import MachineError, UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

WORK = ".export-"


def remove_leftovers(folder: Path, start: str) -> None:
    """Removes what killed processes left under names of this start, their number and `.part` or `-...`.

    Files and folders of processes that run, here or on another machine, are kept: those are locked.
    """
    for left in folder.glob(f"{escape(start)}*"):
        named = re.fullmatch(r"(\d{1,9})(\.part|-\w+)", left.name[len(start) :])
        if fcntl is None or named is None or _runs(int(named[1])):
            continue
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(left) if left.is_dir() else left.unlink()
            finally:
                os.close(descriptor)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """A folder inside this one for files that are not complete yet."""
    remove_leftovers(folder, WORK)
    with TemporaryDirectory(dir=folder, prefix=f"{WORK}{os.getpid()}-") as name:
        descriptor = os.open(name, os.O_RDONLY) if fcntl else None
        try:
            lock(descriptor)
            yield Path(name)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def lock(descriptor: int | None) -> None:
    """Marks an open file or folder as in use until it is closed, where the system can."""
    if fcntl and descriptor is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends, and is removed where the block fails."""
    start = f".{path.name}."
    remove_leftovers(path.parent, start)
    part = path.with_name(f"{start}{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def replacing_output(path: Path) -> Iterator[IO[bytes]]:
    """The same for a file that the user named: errors of the disk become sentences that name it."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        reason = error.strerror or error
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise MachineError(
                f"'{path}' was not written ({reason}): make room on the disk, then try again."
            ) from error
        raise UserError(f"'{path}' cannot be written ({reason}): check its folder, or choose another file.") from error


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON by its standard: NaN and infinities become null."""
    return json.dumps(finite(value), ensure_ascii=False, indent=indent)


def finite(value: Any) -> Any:
    """The same value with null for numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def write(path: Path, content: str | bytes | memoryview) -> None:
    """Replaces the file by this content; a reader sees either the old file or the new one. Text is UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def made_folder(folder: Path) -> Path:
    """Makes a folder for results unless it exists; UserError, before any work is done, for one that is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"The folder '{folder}' cannot be written ({error.strerror}): choose another --out.") from None
    return folder


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """Turns errors of the disk into a MachineError that says what could not be written."""
    try:
        yield
    except OSError as error:
        raise MachineError(f"The {what} could not be written to '{folder}': {error.strerror}.") from error


def csv_text(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def write_json(path: Path, content: Any) -> None:
    """Replaces the file by this content as JSON."""
    write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
