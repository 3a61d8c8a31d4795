"""A table of trained networks in one small file, which is checked and mapped into memory when it is opened.

    benchmark = TabularBenchmark.open("nb201.ezb")
    benchmark.accuracy("|nor_conv_3x3~0|+...", "cifar10", "test")
    benchmark.column("cifar10_test")                      # all rows, in the order of the source

Architectures are stored as their space writes them, in compressed blocks, in the source's order. A sorted index of the
space's `key` finds a network and those that are isomorphic to it. Columns keep every digit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError
from epochzero.registry import near_miss, spaces
from epochzero.tables import file
from epochzero.tables.benchmark import Benchmark
from epochzero.tables.columns import COSTS, Column, Numbers, settled
from epochzero.tables.file import decoded, encoded
from epochzero.tables.keys import TextSpace, digest_of, key_of, keyed, normalised
from epochzero.tables.rows import Rows, mean

BLOCK = 1024
"""number of architectures that are compressed together"""
LONGEST = 1 << 26
"""largest number of bytes of such a block, unpacked"""
MILLIONS = 1e6


class Match(NamedTuple):
    """The row of an architecture."""

    row: int
    text: str
    exact: bool
    """False if the row is another architecture, isomorphic to the wanted one"""


class TabularBenchmark(Benchmark):
    """Architectures, each once, with columns of data about them."""

    def __init__(self, about: Mapping[str, Any], sections: file.Sections, source: str, space: Any = None) -> None:
        self.source = source
        self.space_name: str = str(about["space"])
        self.origin: str = str(about["source"])
        """name of the file that was imported"""
        self.columns = [Column.from_json(fields) for fields in about["columns"]]
        self.notes: list[str] = list(map(str, about["notes"]))
        """sentences about what was left out or is unusual"""
        self.id = ""
        """SHA-256 of the file's header, which covers all of its content; empty for a benchmark in memory"""
        self._rows: int = index(about["rows"])
        self._sections = sections
        self._space = space
        self._check()

    def _check(self) -> None:
        parts = self._sections
        blocks = -(-self._rows // BLOCK) + 1 if len(parts["texts"]) else 0
        if not len(parts["digests"]) == len(parts["places"]) == self._rows or len(parts["blocks"]) != blocks:
            raise ValueError("its index has another number of rows than its header")
        if _last(parts["places"]) >= self._rows or _last(parts["blocks"]) > len(parts["texts"]):
            raise ValueError("its index points beyond its content")
        for i, column in enumerate(self.columns):
            numbers = parts.get(f"codes{i}", parts.get(f"numbers{i}"))
            if numbers is None or len(numbers) != self._rows:
                raise ValueError(f"column '{column.full_name}' has another number of rows than the header")
            if f"codes{i}" in parts and _last(numbers) >= len(parts[f"values{i}"]):
                raise ValueError(f"column '{column.full_name}' refers to values that are missing")

    @classmethod
    def of(cls, rows: Rows, space: TextSpace, unit: str | None = None) -> TabularBenchmark:
        """Returns a benchmark in memory. Raises UserError for foreign or repeated rows and for mixed units."""
        keys = keyed(rows, space)
        archs = list(keys)
        columns = settled(rows.columns, rows.source, unit)
        texts = [("\n".join(archs[i : i + BLOCK])).encode() for i in range(0, len(archs), BLOCK)]
        packed = [zlib.compress(text, 9) for text in texts]
        digests = np.array([digest_of(key) for key in keys.values()], np.uint32)
        order = np.argsort(digests, kind="stable")
        parts: dict[str, NDArray[Any]] = {
            "texts": np.frombuffer(b"".join(packed), np.uint8),
            "blocks": np.cumsum([0, *map(len, packed)]).astype(np.uint64),
            "digests": digests[order],
            "places": order.astype(np.uint32),
        }
        about = {"space": space.name, "source": Path(rows.source).name, "rows": len(archs), "notes": rows.notes}
        return cls(about | _listed(columns), parts | encoded(columns), rows.source, space)

    @classmethod
    def open(cls, path: str | Path, space: TextSpace | None = None) -> TabularBenchmark:
        """Returns the benchmark in a file; its space is looked up by name unless given."""
        about, sections, digest = file.read(Path(path))
        try:
            made = cls(about, sections, str(path), space)
        except (KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise DataError(f"{path} is not a usable benchmark ({why}). Import the source again.") from error
        made.id = digest
        return made

    def write(self, path: str | Path) -> None:
        """Write the benchmark to a file, completely or not at all."""
        file.write(Path(path), self._about() | _listed(self.columns), self._sections)

    def _about(self) -> dict[str, Any]:
        return {"space": self.space_name, "source": self.origin, "rows": self._rows, "notes": self.notes}

    def __len__(self) -> int:
        return self._rows

    @property
    def space(self) -> Any:
        return self._space if self._space is not None else spaces[self.space_name]

    # Columns

    @property
    def names(self) -> list[str]:
        """Every name that `column` accepts: means over runs first, then single runs."""
        means = [column.name for column in self.columns]
        return list(dict.fromkeys([*means, *(column.full_name for column in self.columns)]))

    def column(self, name: str) -> Numbers:
        """Returns the numbers of a column, nan for unknown ones; a name without a seed gives the mean over the runs."""
        exact = [i for i, column in enumerate(self.columns) if column.full_name == name]
        runs = exact or [i for i, column in enumerate(self.columns) if column.name == name]
        if not runs:
            raise DataError(
                f"{self.source} has no column '{name}'.{near_miss(name, self.names)} "
                f"Its columns: {', '.join(self.names)}."
            )
        return self._mean(runs)

    @property
    def unknown(self) -> dict[str, int]:
        """The number of architectures without a value in any run, by column; complete columns are left out."""
        gaps = {name: int(np.isnan(self.column(name)).sum()) for name in dict.fromkeys(c.name for c in self.columns)}
        return {name: count for name, count in gaps.items() if count}

    def _mean(self, runs: Sequence[int], rows: slice = slice(None)) -> Numbers:
        numbers = [decoded(self._sections, run, rows) for run in runs]
        return numbers[0] if len(numbers) == 1 else mean(numbers)

    # Architectures

    @cached_property
    def archs(self) -> list[str]:
        """All architectures, as their space writes them."""
        return [text for block in range(len(self._sections["blocks"]) - 1) for text in self._block(block)]

    def _block(self, number: int) -> list[str]:
        begin, end = (int(place) for place in self._sections["blocks"][number : number + 2])
        unpacking = zlib.decompressobj()
        try:
            packed = self._sections["texts"][begin:end].tobytes()
            texts = unpacking.decompress(packed, LONGEST).decode().split("\n")
        except (zlib.error, UnicodeDecodeError):
            texts = []
        if not unpacking.eof or len(texts) != min(BLOCK, self._rows - number * BLOCK):
            raise DataError(f"{self.source} is damaged: some architectures are unreadable. Import the source again.")
        return texts

    def find(self, arch: str) -> Match:
        """Returns the row of an architecture or, if it has none, the only row of an isomorphic one."""
        space = self.space
        value = space.parse(arch)
        text, key = space.text(value), key_of(space, value)
        digests = self._sections["digests"]
        # a uint32: searchsorted would copy a mapped index to compare it with a wider number
        digest = np.uint32(digest_of(key))
        span = slice(*(int(np.searchsorted(digests, digest, side)) for side in ("left", "right")))
        places = sorted(int(place) for place in self._sections["places"][span])
        texts = {place: self._block(place // BLOCK)[place % BLOCK] for place in places}
        for place, stored in texts.items():
            if stored == text:
                return Match(place, stored, exact=True)
        twins = [place for place in places if key_of(space, space.parse(texts[place])) == key]
        if not twins:
            raise DataError(f"{self.source} has no row for architecture '{text}' or an isomorphic one.")
        if len(twins) > 1:
            some = ", ".join(f"'{texts[place]}'" for place in twins[:3])
            raise DataError(
                f"{self.source} has no row for architecture '{text}' itself, and {len(twins)} rows that are "
                f"isomorphic to it. Choose one of them, such as {some}."
            )
        return Match(twins[0], texts[twins[0]], exact=False)

    # Lookups

    def accuracy(
        self,
        arch: str,
        dataset: str | None = None,
        split: str = "test",
        epochs: int | None = None,
        seed: int | None = None,
    ) -> float:
        row = self.find(arch).row
        runs = self._accuracies(dataset, split, epochs, seed)
        value = float(self._mean(runs, slice(row, row + 1))[0])
        if np.isnan(value):
            name = self.columns[runs[0]].name if len(runs) > 1 else self.columns[runs[0]].full_name
            raise DataError(f"{self.source} has no {name} for '{arch}'.")
        return value

    def _accuracies(self, dataset: str | None, split: str, epochs: int | None, seed: int | None) -> list[int]:
        """Returns the columns of the wanted runs."""
        known = {i: column for i, column in enumerate(self.columns) if column.quantity == "accuracy"}
        chosen = {
            i: column
            for i, column in known.items()
            if column.split == split
            and dataset in (None, column.dataset)
            and epochs in (None, column.epochs)
            and seed in (None, column.seed)
        }
        said = {"dataset": dataset, "split": split, "epochs": epochs, "seed": seed}
        asked = ", ".join(f"{word} {value}" for word, value in said.items() if value is not None)
        named = list(dict.fromkeys(column.full_name for column in known.values()))
        if not chosen:
            raise DataError(f"{self.source} has no accuracy for {asked}. Its accuracies: {', '.join(named) or 'none'}.")
        datasets = sorted({column.dataset for column in chosen.values()})
        if len(datasets) > 1:
            raise UserError(f"{self.source} has accuracies on {', '.join(datasets)}. Name one as the dataset.")
        unsaid = [i for i, column in chosen.items() if column.epochs is None]
        longest = max((column.epochs for column in chosen.values() if column.epochs is not None), default=None)
        # a table that names no epochs has the full training
        return unsaid or [i for i, column in chosen.items() if column.epochs == longest]

    def cost(self, arch: str, dataset: str | None = None) -> dict[str, float]:
        row = self.find(arch).row
        costs: dict[str, float] = {}
        for quantity in COSTS:
            runs: dict[str, list[int]] = {}
            for i, column in enumerate(self.columns):
                if column.quantity == quantity and (dataset is None or self._of(column) in ("", dataset)):
                    runs.setdefault(column.name, []).append(i)
            for name, columns in runs.items():
                value = float(self._mean(columns, slice(row, row + 1))[0])
                scale = MILLIONS if self.columns[columns[0]].unit == "M" else 1
                if not np.isnan(value):
                    costs[quantity if len(runs) == 1 else name.removesuffix("_M")] = value * scale
        return costs

    def _of(self, column: Column) -> str:
        """Returns the dataset of a cost; if unnamed, that of an accuracy whose dataset begins the column's name."""
        known = {other.dataset for other in self.columns if other.dataset}
        return column.dataset or next((name for name in known if column.name.startswith(f"{name}_")), "")

    # Joining another table

    def rows(self) -> Rows:
        """Returns the whole table in memory."""
        columns = {column: decoded(self._sections, i) for i, column in enumerate(self.columns)}
        return Rows(self.archs, columns, self.source, notes=self.notes)

    def join(self, other: Rows, unit: str | None = None) -> TabularBenchmark:
        """Returns the table with the columns of another one, such as latencies, for the same architectures.

        Rows are matched by text only, since isomorphic networks need not be equally fast. Values that the other table
        lacks are nan. A column in both tables must agree, and is kept once.
        """
        places = {arch: row for row, arch in enumerate(normalised(other, self.space))}
        rows = np.array([places.get(arch, -1) for arch in self.archs])
        met = rows >= 0
        if not met.any():
            raise DataError(
                f"{other.source} has no architecture of {self.source}. Check that both belong to the same space."
            )
        joined = dict(self.rows().columns)
        names = {column.full_name: column for column in joined}
        for column, numbers in settled(other.columns, other.source, unit).items():
            moved = np.where(met, numbers[rows], np.nan)
            if column.full_name not in names:
                joined[column] = moved
            elif not np.array_equal(joined[names[column.full_name]][met], moved[met], equal_nan=True):
                raise DataError(
                    f"{self.source} and {other.source} have different values in column '{column.full_name}'. "
                    f"Rename or drop one of them."
                )
        if len({column.unit for column in joined if column.quantity == "accuracy"}) > 1:
            raise DataError(
                f"The accuracies of {self.source} and {other.source} have different units. Choose one with --unit "
                f"percent or --unit fraction."
            )
        name = Path(other.source).name
        about = self._about() | {"source": f"{self.origin} + {name}", "notes": [*self.notes, *other.notes]}
        if not met.all():
            about["notes"].append(f"{int((~met).sum()):,} of {len(met):,} architectures are not in {name}.")
        parts = {name: self._sections[name] for name in ("texts", "blocks", "digests", "places")}
        return TabularBenchmark(about | _listed(joined), parts | encoded(joined), self.source, self._space)


def _last(numbers: NDArray[Any]) -> int:
    """The largest of these indices, -1 if there are none."""
    if numbers.dtype.kind != "u":
        raise ValueError("an index holds other numbers than indices")
    return int(numbers.max()) if len(numbers) else -1


def _listed(columns: Iterable[Column]) -> dict[str, Any]:
    return {"columns": [column.as_json() for column in columns]}
