"""A table of trained networks in one small file that is checked and mapped on opening.

    benchmark = TabularBenchmark.open("nb201.ezb")
    benchmark.accuracy("|nor_conv_3x3~0|+...", "cifar10", "test")
    benchmark.column("cifar10_test")                      # all rows, in the order of the source

Architectures are kept as their space writes them, in compressed blocks, in the source's order. A sorted index of the
space's `key` finds a network and those that are isomorphic to it. No digit of a column is lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError
from epochzero.registry import near_miss, spaces
from epochzero.tables import file
from epochzero.tables.benchmark import Benchmark
from epochzero.tables.columns import COSTS, Column, Numbers, settled
from epochzero.tables.keys import TextSpace, digest_of, key_of, keyed, normalised
from epochzero.tables.packed import decoded, encoded
from epochzero.tables.rows import Rows, mean

BLOCK = 1024
"""architectures that are compressed together"""
MILLIONS = 1e6


class Match(NamedTuple):
    """The row of an architecture."""

    row: int
    text: str
    exact: bool
    """False where the row is another architecture that is isomorphic to the one asked for"""


class TabularBenchmark(Benchmark):
    """Architectures, each once, and columns of what is known of them."""

    def __init__(self, about: Mapping[str, Any], sections: file.Sections, source: str, space: Any = None) -> None:
        self.source = source
        self.space_name: str = about["space"]
        self.origin: str = about["source"]
        """the name of the file that was imported"""
        self.columns = [Column.from_json(fields) for fields in about["columns"]]
        self.notes: list[str] = list(about["notes"])
        """what was left out, or is odd, in sentences"""
        self.id = ""
        """SHA-256 of the file's header, which names all of its content; empty for one that is in memory"""
        self._rows: int = about["rows"]
        self._sections = sections
        self._space = space
        self._check()

    def _check(self) -> None:
        parts = self._sections
        blocks = -(-self._rows // BLOCK) + 1 if len(parts["texts"]) else 0
        if not len(parts["digests"]) == len(parts["places"]) == self._rows or len(parts["blocks"]) != blocks:
            raise ValueError("its index does not have as many rows as it says")
        for i, column in enumerate(self.columns):
            numbers = parts.get(f"codes{i}", parts.get(f"numbers{i}"))
            if numbers is None or len(numbers) != self._rows:
                raise ValueError(f"column '{column.full_name}' does not have as many rows as it says")

    @classmethod
    def of(cls, rows: Rows, space: TextSpace, unit: str | None = None) -> TabularBenchmark:
        """A benchmark in memory. UserError for a row of another space, a repeated one, or accuracies in mixed units."""
        keys = keyed(rows, space)
        archs = list(keys)
        columns = settled(rows.columns, rows.source, unit)
        texts = [("\n".join(archs[i : i + BLOCK])).encode() for i in range(0, len(archs), BLOCK)]
        packed = [zlib.compress(text, 9) for text in texts]
        digests = np.array([digest_of(key) for key in keys.values()], np.uint32)
        order = np.argsort(digests, kind="stable")
        index: dict[str, NDArray[Any]] = {
            "texts": np.frombuffer(b"".join(packed), np.uint8),
            "blocks": np.cumsum([0, *map(len, packed)]).astype(np.uint64),
            "digests": digests[order],
            "places": order.astype(np.uint32),
        }
        about = {"space": space.name, "source": Path(rows.source).name, "rows": len(archs), "notes": rows.notes}
        return cls(about | _listed(columns), index | encoded(columns), rows.source, space)

    @classmethod
    def open(cls, path: str | Path, space: TextSpace | None = None) -> TabularBenchmark:
        """The benchmark in a file; its space is looked up by name where none is given."""
        about, sections, digest = file.read(Path(path))
        try:
            made = cls(about, sections, str(path), space)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is no benchmark that can be used: {error}. Import the source again.") from error
        made.id = digest
        return made

    def write(self, path: str | Path) -> None:
        """Write the benchmark to a file, whole or not at all."""
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
        """Every name that `column` takes: means over runs first, then single runs."""
        means = [column.name for column in self.columns]
        return list(dict.fromkeys([*means, *(column.full_name for column in self.columns)]))

    def column(self, name: str) -> Numbers:
        """The numbers of a column, nan where one is not known; without its seed, the mean over the runs."""
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
        """By name, how many architectures a column knows nothing of in any run; those that know all are left out."""
        gaps = {name: int(np.isnan(self.column(name)).sum()) for name in dict.fromkeys(c.name for c in self.columns)}
        return {name: count for name, count in gaps.items() if count}

    def _mean(self, runs: Sequence[int], rows: slice = slice(None)) -> Numbers:
        numbers = [decoded(self._sections, run, rows) for run in runs]
        return numbers[0] if len(numbers) == 1 else mean(numbers)

    # Architectures

    @cached_property
    def archs(self) -> list[str]:
        """Every architecture, as its space writes it."""
        return [text for block in range(len(self._sections["blocks"]) - 1) for text in self._block(block)]

    def _block(self, number: int) -> list[str]:
        begin, end = (int(place) for place in self._sections["blocks"][number : number + 2])
        return zlib.decompress(self._sections["texts"][begin:end].tobytes()).decode().split("\n")

    def find(self, arch: str) -> Match:
        """The row of an architecture or, where it has none, the one row of an isomorphic architecture."""
        space = self.space
        value = space.parse(arch)
        text, key = space.text(value), key_of(space, value)
        digests = self._sections["digests"]
        # a uint32: searchsorted would copy a mapped index to compare it with a wider number
        digest = np.uint32(digest_of(key))
        span = slice(*(int(np.searchsorted(digests, digest, side)) for side in ("left", "right")))
        places = sorted(int(place) for place in self._sections["places"][span])
        texts = {place: self._block(place // BLOCK)[place % BLOCK] for place in places}
        for place, found in texts.items():
            if found == text:
                return Match(place, found, exact=True)
        twins = [place for place in places if key_of(space, space.parse(texts[place])) == key]
        if not twins:
            raise DataError(f"{self.source} has no row for architecture '{text}', nor for one isomorphic to it.")
        if len(twins) > 1:
            some = ", ".join(f"'{texts[place]}'" for place in twins[:3])
            raise DataError(
                f"{self.source} has no row for architecture '{text}' itself, and {len(twins)} rows that are "
                f"isomorphic to it: name one of them, such as {some}."
            )
        return Match(twins[0], texts[twins[0]], exact=False)

    # What a benchmark answers

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
            raise DataError(f"{self.source} does not know {name} of '{arch}'.")
        return value

    def _accuracies(self, dataset: str | None, split: str, epochs: int | None, seed: int | None) -> list[int]:
        """The columns of the runs that are asked for."""
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
            raise UserError(f"{self.source} has accuracies on {', '.join(datasets)}: name one of them as the dataset.")
        unsaid = [i for i, column in chosen.items() if column.epochs is None]
        longest = max((column.epochs for column in chosen.values() if column.epochs is not None), default=None)
        # a table that names no epochs means the full training
        return unsaid or [i for i, column in chosen.items() if column.epochs == longest]

    def cost(self, arch: str, dataset: str | None = None) -> dict[str, float]:
        row = self.find(arch).row
        found: dict[str, float] = {}
        for quantity in COSTS:
            runs: dict[str, list[int]] = {}
            for i, column in enumerate(self.columns):
                if column.quantity == quantity and (dataset is None or self._of(column) in ("", dataset)):
                    runs.setdefault(column.name, []).append(i)
            for name, columns in runs.items():
                value = float(self._mean(columns, slice(row, row + 1))[0])
                scale = MILLIONS if self.columns[columns[0]].unit == "M" else 1
                if not np.isnan(value):
                    found[quantity if len(runs) == 1 else name.removesuffix("_M")] = value * scale
        return found

    def _of(self, column: Column) -> str:
        """The dataset of a cost; where nothing says so, that of an accuracy whose dataset begins the column's name."""
        known = {other.dataset for other in self.columns if other.dataset}
        return column.dataset or next((name for name in known if column.name.startswith(f"{name}_")), "")

    # Another table beside this one

    def rows(self) -> Rows:
        """The whole table in memory."""
        columns = {column: decoded(self._sections, i) for i, column in enumerate(self.columns)}
        return Rows(self.archs, columns, self.source, notes=self.notes)

    def join(self, other: Rows, unit: str | None = None) -> TabularBenchmark:
        """The same table with the columns of another one, such as latencies, for the same architectures.

        Rows meet by their text alone: what is isomorphic need not be equally fast. What the other table does not know
        is nan. A column that both have must agree, and is kept once.
        """
        places = {arch: row for row, arch in enumerate(normalised(other, self.space))}
        rows = np.array([places.get(arch, -1) for arch in self.archs])
        met = rows >= 0
        if not met.any():
            raise DataError(f"{other.source} has no architecture of {self.source}: are they of the same space?")
        joined = dict(self.rows().columns)
        names = {column.full_name: column for column in joined}
        for column, numbers in settled(other.columns, other.source, unit).items():
            moved = np.where(met, numbers[rows], np.nan)
            if column.full_name not in names:
                joined[column] = moved
            elif not np.array_equal(joined[names[column.full_name]][met], moved[met], equal_nan=True):
                raise DataError(
                    f"{self.source} and {other.source} both have a column '{column.full_name}', with other values: "
                    f"rename or drop one of them."
                )
        if len({column.unit for column in joined if column.quantity == "accuracy"}) > 1:
            raise DataError(
                f"The accuracies of {self.source} are not in the unit of those of {other.source}: say with --unit "
                f"percent or --unit fraction what they should become."
            )
        name = Path(other.source).name
        about = self._about() | {"source": f"{self.origin} + {name}", "notes": [*self.notes, *other.notes]}
        if not met.all():
            about["notes"].append(f"{int((~met).sum()):,} of {len(met):,} architectures are not in {name}.")
        index = {name: self._sections[name] for name in ("texts", "blocks", "digests", "places")}
        return TabularBenchmark(about | _listed(joined), index | encoded(joined), self.source, self._space)


def _listed(columns: Iterable[Column]) -> dict[str, Any]:
    return {"columns": [column.as_json() for column in columns]}
