"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends, and is removed where the block fails."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


def write(path: Path, content: str | bytes | memoryview) -> None:
    """Replaces the file by this content; a reader sees either the old file or the new one. Text is UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
