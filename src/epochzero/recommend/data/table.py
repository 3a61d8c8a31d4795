"""A table of clicks as numbers in a folder, batched from a memory map.

`meta.json`, `encoding.json`, the columns `dense`, `ids`, `label` and `part` as plain little-endian numbers, and
`skipped.tsv` with the lines that were put aside. Needs only torch and numpy.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.errors import DataError, MachineError, UserError
from epochzero.recommend.data.encoder import Encoded
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.lines import BadLine
from epochzero.recommend.data.schema import Schema
from epochzero.recommend.data.split import PARTS

META = "meta.json"
STRETCH = 1 << 16
"""rows that are read at a time"""
FILES = {"dense": "<f4", "ids": "<i4", "label": "<u1", "part": "<u1"}

Part = Literal["train", "val", "test", "other"]


class CtrBatch(NamedTuple):
    """A batch of rows."""

    dense: Tensor
    """[B, D] float32"""
    ids: Tensor
    """[B, F] int64: column f's ids are below `rows[f]`"""
    label: Tensor
    """[B] float32: 0 or 1"""


@dataclass(frozen=True, eq=False)
class CtrTable:
    """A table in numbers."""

    folder: Path
    encoding: Encoding
    count: int
    """rows in all parts"""
    skipped: int
    """number of lines in `skipped.tsv`"""
    fingerprint: str
    """a hash of the source, the schema and the split"""
    about: dict[str, Any] = field(default_factory=dict)
    """further facts, such as the source"""

    @property
    def rows(self) -> tuple[int, ...]:
        return self.encoding.rows

    @property
    def num_dense(self) -> int:
        return self.encoding.num_dense

    def capped(self, rows: Sequence[int]) -> CtrTable:
        """The same table, whose batches fold ids into embedding tables of at most these rows."""
        return replace(self, encoding=self.encoding.capped(rows))

    def column(self, name: str) -> NDArray[Any]:
        """A memory map of `dense` [N, D], `ids` [N, F] (not folded), `label` [N] or `part` [N]."""
        return _mapped(self.folder, name, self.count, self.num_dense, len(self.rows), "r")

    def size(self, *wanted: Part) -> int:
        """The number of rows in these parts."""
        return int(self._counts(wanted).sum())

    def clicks(self, *wanted: Part) -> int:
        """The number of rows with the label 1 in these parts."""
        mask, label = self._mask(wanted), self.column("label")
        return sum(int(label[rows][mask[self.column("part")[rows]]].sum()) for rows in self._stretches())

    def batches(self, *wanted: Part, size: int, start: int = 0, stop: int | None = None) -> Iterator[CtrBatch]:
        """The rows of the parts in the order of the file, from batch `start` on; the last batch may be smaller.

        Batches end before row `stop`, counted within the parts.
        """
        if size < 1:
            raise UserError(f"The batch size is {size}; it has to be at least 1.")
        columns = [self.column(name) for name in ("dense", "ids", "label")]
        rest = [column[:0] for column in columns]
        end = self.size(*wanted) if stop is None else min(stop, self.size(*wanted))
        left = end - start * size
        for chosen in self._chosen(wanted, start * size):
            taken = chosen[: max(0, left)]
            left -= len(taken)
            new = [column[taken] for column in columns]
            held = [np.concatenate(both) for both in zip(rest, new, strict=True)]
            ready = len(held[0]) if left <= 0 else len(held[0]) // size * size
            for first in range(0, ready, size):
                yield self._batch(*(array[first : min(first + size, ready)] for array in held))
            if left <= 0:
                return
            rest = [array[ready:] for array in held]

    def shuffled(
        self, *wanted: Part, size: int, start: int = 0, stop: int | None = None, seed: Sequence[int] = (0,)
    ) -> Iterator[CtrBatch]:
        """The rows before row `stop` of the parts in an order drawn with the seed, from batch `start` on."""
        numbers = np.concatenate([*self._chosen(wanted, 0), np.zeros(0, np.int64)])[:stop]
        order = np.random.default_rng([*seed]).permutation(numbers)
        columns = [self.column(name) for name in ("dense", "ids", "label")]
        for first in range(start * size, len(order), size):
            yield self._batch(*(column[np.sort(order[first : first + size])] for column in columns))

    def _batch(self, dense: NDArray[Any], ids: NDArray[Any], label: NDArray[Any]) -> CtrBatch:
        if ((ids < 0) | (ids >= np.array(self.encoding.full, np.int32))).any():
            raise damaged("ids", self.folder)
        ids = self.encoding.folded(ids)
        return CtrBatch(torch.from_numpy(dense), torch.from_numpy(ids).long(), torch.from_numpy(label).float())

    def _chosen(self, wanted: Sequence[Part], skip: int) -> Iterator[NDArray[np.int64]]:
        """The numbers of the rows of the parts without the first `skip`, one stretch after the other."""
        mask, part = self._mask(wanted), self.column("part")
        for rows, count in zip(self._stretches(), self._counts(wanted), strict=True):
            if skip >= count:
                skip -= int(count)
            else:
                yield np.flatnonzero(mask[part[rows]])[skip:] + rows.start
                skip = 0

    def _stretches(self) -> list[slice]:
        return [slice(first, min(first + STRETCH, self.count)) for first in range(0, self.count, STRETCH)]

    def _counts(self, wanted: Sequence[Part]) -> NDArray[np.int64]:
        """The number of rows of the parts in every stretch."""
        mask, part = self._mask(wanted), self.column("part")
        return np.array([np.count_nonzero(mask[part[rows]]) for rows in self._stretches()], np.int64)

    def _mask(self, wanted: Sequence[Part]) -> NDArray[np.bool_]:
        for name in wanted:
            if name not in PARTS:
                raise UserError(f"No part of a table is called '{name}': use {', '.join(PARTS)}.")
        return np.array([name in wanted for name in PARTS])


def _mapped(folder: Path, name: str, count: int, dense: int, sparse: int, mode: Literal["r", "r+"]) -> NDArray[Any]:
    shape = {"dense": (count, dense), "ids": (count, sparse)}.get(name, (count,))
    if 0 in shape:
        return np.zeros(shape, FILES[name])
    return np.memmap(folder / name, FILES[name], mode, shape=shape)


class Writer:
    """Writes a table to a temporary folder, and moves it to its place when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.bad = 0
        self.first_bad: BadLine | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Writer:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.new = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}.", dir=self.folder.parent))
            self.new.chmod(0o755)
            self._files = {name: self._stack.enter_context((self.new / name).open("wb")) for name in FILES}
            self._skipped = self._stack.enter_context((self.new / "skipped.tsv").open("w", encoding="utf-8"))
        except OSError as error:
            raise UserError(
                f"The folder {self.folder} cannot be written ({error.strerror}): choose another."
            ) from error
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        shutil.rmtree(self.new, ignore_errors=True)

    def add(self, rows: Encoded) -> None:
        try:
            for name, file in self._files.items():
                file.write(np.ascontiguousarray(getattr(rows, name), FILES[name]).data)
            for bad in rows.bad:
                self._skipped.write(f"{bad.number}\t{bad.why}\t{bad.text}\n")
        except OSError as error:
            raise MachineError(f"The table cannot be written to {self.new} ({error.strerror}).") from error
        self.count += len(rows.label)
        self.bad += len(rows.bad)
        self.first_bad = self.first_bad or next(iter(rows.bad), None)

    def close_columns(self) -> None:
        self._stack.close()

    def mapped(self, name: str, schema: Schema) -> NDArray[Any]:
        """A column to change, once all rows are written."""
        return _mapped(self.new, name, self.count, max(1, len(schema.dense)), len(schema.categorical), "r+")

    def finish(self, encoding: Encoding, fingerprint: str, **about: Any) -> CtrTable:
        meta = {"fingerprint": fingerprint, "count": self.count, "skipped": self.bad, "about": about}
        (self.new / "encoding.json").write_text(encoding.text(), encoding="utf-8")
        (self.new / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
        if (self.folder / META).exists():
            shutil.rmtree(self.folder)
        try:
            self.new.replace(self.folder)
        except OSError as error:
            raise UserError(f"{self.folder} holds something other than a table: choose another folder.") from error
        return open_table(self.folder)


def open_table(folder: str | Path) -> CtrTable:
    """Opens a table; DataError if it is damaged."""
    folder = Path(folder)
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        count, skipped, fingerprint, about = (meta[key] for key in ("count", "skipped", "fingerprint", "about"))
        table = CtrTable(folder, Encoding.read(folder / "encoding.json"), count, skipped, fingerprint, about)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{folder} holds no table in numbers, or its meta.json is damaged ({str(error)[:200]}): make it again from "
            "its source."
        ) from error
    if [type(one) for one in (count, skipped, fingerprint, about)] != [int, int, str, dict]:
        raise damaged("meta.json", folder)
    widths = {"dense": 4 * table.num_dense, "ids": 4 * len(table.rows), "label": 1, "part": 1}
    for name, width in widths.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != table.count * width:
            raise damaged(name, folder)
    for name, kinds in (("label", 2), ("part", len(PARTS))):
        if table.column(name).max(initial=0) >= kinds:
            raise damaged(name, folder)
    return table


def damaged(name: str, folder: Path) -> DataError:
    return DataError(f"The file {name} of the table {folder} is damaged: make the table again from its source.")


def find_table(folder: Path, fingerprint: str) -> CtrTable | None:
    """The table in the folder if it is complete and has this fingerprint."""
    try:
        table = open_table(folder)
    except DataError:
        return None
    return table if table.fingerprint == fingerprint else None
