"""The formats of accuracy tables that `epochzero data import` reads, one file each.

    formats.register("my_table", Format("a .mine file of My Benchmark", fits, read))

`fits(source)` returns True for a source of the format, and `read(source)` returns its `Rows`. Other distributions add
formats with an entry point in the group `epochzero.tables`, users with `--plugin FILE.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from epochzero.registry import Registry
from epochzero.tables import pickles
from epochzero.tables.rows import Rows


@dataclass(frozen=True)
class Source:
    """A file or folder to import, and the settings of its import."""

    path: Path
    space: Any = None
    sample: int | None = None
    """number of random networks, for a surrogate"""
    seed: int = 0
    trusted: bool = False
    """True where the file may run code, as `--trust` says"""

    def ends(self, *endings: str) -> bool:
        """Returns True for a file whose name has one of these endings."""
        return self.path.is_file() and self.path.name.lower().endswith(endings)

    def files(self, ending: str) -> list[Path]:
        """The files of a folder with this ending, sorted by name; empty where the source is not a folder."""
        return sorted(file for file in self.path.iterdir() if file.name.endswith(ending)) if self.path.is_dir() else []

    @cached_property
    def pth(self) -> Any:
        """The plain values of a .pth file, read once and without unpickling objects; empty for any other source."""
        return pickles.load_pth(self.path) if self.ends(".pth") else {}

    def pth_has(self, key: str) -> bool:
        """Returns True for a .pth file that holds a dictionary with this key."""
        return isinstance(self.pth, dict) and key in self.pth


@dataclass(frozen=True)
class Format:
    """One kind of file or folder that can be imported."""

    about: str
    """noun phrase for messages: `a .tfrecord of NAS-Bench-101`"""
    fits: Callable[[Source], bool]
    read: Callable[[Source], Rows]
    surrogate: bool = False
    """True for a model that predicts accuracies of the networks that `--sample` draws"""


formats: Registry[Format] = Registry("table format", "epochzero.tables.formats", group="epochzero.tables")
