"""Lookup of rows in a table: by the text of an architecture, and by a key that isomorphic ones share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from epochzero.errors import DataError, UserError
from epochzero.tables.rows import Rows

CHECKED = 64
"""number of keys in a source that are compared with the space's own"""


class TextSpace(Protocol):
    """The methods of a space that tables need; isomorphic architectures share the optional `key`."""

    name: str

    def parse(self, text: str) -> Any: ...

    def text(self, arch: Any) -> str: ...


def normalised(rows: Rows, space: TextSpace, key: Callable[[Any], str] | None = None) -> dict[str, str]:
    """Returns each architecture as its space writes it, with its key if `key` is given."""
    first: dict[str, int] = {}
    keys: dict[str, str] = {}
    for row, arch in enumerate(rows.archs):
        try:
            value = space.parse(arch)
            text = space.text(value)
        except UserError as error:
            raise DataError(f"Row {row + 1} of {rows.source} does not fit {space.name}: {error}") from error
        if "\n" in text:
            raise DataError(
                f"Row {row + 1} of {rows.source} has a text of several lines in {space.name}: not supported."
            )
        if first.setdefault(text, row) != row:
            raise DataError(
                f"Architecture '{text}' is listed twice in {rows.source} (rows {first[text] + 1} and {row + 1}); "
                f"keep one of them."
            )
        keys[text] = "" if key is None else key(value)
    return keys


def keyed(rows: Rows, space: TextSpace) -> dict[str, str]:
    """Returns each architecture with its key: the source's own if it has keys, of which a sample is checked."""
    if rows.keys is None:
        return normalised(rows, space, partial(key_of, space))
    archs = list(normalised(rows, space))
    for row in np.linspace(0, len(archs) - 1, min(CHECKED, len(archs)), dtype=int):
        if key_of(space, space.parse(archs[row])) != rows.keys[row]:
            raise DataError(
                f"Row {row + 1} of {rows.source} has the hash '{rows.keys[row]}', which does not match its cell. The "
                f"file is damaged, or belongs to a space other than {space.name}."
            )
    return dict(zip(archs, rows.keys, strict=True))


def key_of(space: Any, value: Any) -> str:
    key: str = space.key(value) if hasattr(space, "key") else space.text(value)
    return key


def digest_of(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "little")
