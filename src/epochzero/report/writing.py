"""A report as a file."""

from __future__ import annotations

from pathlib import Path

from epochzero.errors import UserError
from epochzero.files import replacing_output
from epochzero.report.content import Subject
from epochzero.report.page import page
from epochzero.report.reading import reading


def write(subject: Subject, path: Path) -> int:
    """Writes the report atomically; returns its size in bytes."""
    if path.is_dir() or path.resolve() == subject.store.resolve():
        what = "a folder" if path.is_dir() else "the store itself"
        raise UserError(f"The report cannot be written to '{path}', which is {what}: choose another --out.")
    with reading(subject.store) as reader:
        content = subject.packed(reader)
    written = page(content).encode()
    with replacing_output(path) as file:
        file.write(written)
    return len(written)
