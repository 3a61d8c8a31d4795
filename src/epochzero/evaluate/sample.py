"""A sample of a table's networks: drawn, read, counted, and grouped if scores are shared.

Rows are drawn before they are read, so that a large table costs no more than the sample. Other rows are not checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError
from epochzero.spaces.base import AnySpace
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.tables.columns import UNITS, described, settled
from epochzero.tables.keys import key_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sharing:
    """Classes of isomorphic networks that share a score."""

    leaders: list[int]
    """for each network, the first of the sample that is isomorphic to it"""
    classes: int
    unlike: int
    """classes whose members differ in parameters or multiply-accumulates"""


@dataclass(frozen=True)
class Sample:
    """Networks of a table, with their accuracies and sizes."""

    archs: list[str]
    """as texts of their space"""
    values: list[Any]
    truths: dict[str, Floats]
    """by target"""
    units: dict[str, str]
    """by target: percent or fraction, or empty if it is not an accuracy"""
    sizes: dict[str, Floats]
    """params and flops, if they can be counted"""
    sharing: Sharing | None
    notes: Sequence[str] = ()
    """of the table"""

    @property
    def digest(self) -> str:
        """A hash of architectures and accuracies, independent of the table's file name."""
        sha = hashlib.sha256("\n".join(self.archs).encode())
        for truth in self.truths.values():
            sha.update(truth.tobytes())
        return sha.hexdigest()[:12]


def draw(
    table: AccuracyTable, targets: Sequence[str], task: Task, number: int | None, seed: int, share: bool
) -> Sample:
    """A random sample of the table's networks, by default all, in an order given by the seed."""
    units = {target: unit_of(target, table.column(target), table.source) for target in targets}
    rows = table.sample(len(table) if number is None else number, seed)
    values, archs = _read(table, rows, task.space)
    truths = {target: table.column(target)[rows] for target in targets}
    sizes = _sizes(task, values)
    sharing = _sharing(task.space, values, sizes) if share else None
    return Sample(archs, values, truths, units, sizes, sharing, table.notes)


def notes_of(name: str, sample: Sample) -> list[str]:
    """Caveats about a table's sample: rows that were joined, units that differ, scores that are shared."""
    notes = [f"{name}: {note}" for note in sample.notes]
    by_unit = {unit: target for target, unit in sample.units.items() if unit}
    if len(by_unit) > 1:
        notes.append(
            f"{name} has '{by_unit['percent']}' in percent and '{by_unit['fraction']}' as fractions: correlations "
            "stay valid, and each regret is in the unit of its own column."
        )
    if (shared := sample.sharing) is not None:
        joins = "class joins" if shared.unlike == 1 else "classes join"
        unlike = f"; {shared.unlike:,} {joins} networks of different size" if shared.unlike else ""
        notes.append(
            f"{name}: scores are shared between isomorphic networks, one scored for each of {shared.classes:,} classes "
            f"of {len(sample.archs):,} networks{unlike}; params and flops stay each network's own."
        )
    return notes


def notes_between(samples: Mapping[str, Sample]) -> list[str]:
    """Caveats about several tables: accuracies in percent in one, as fractions in another."""
    tables = {unit: name for name, sample in samples.items() for unit in sample.units.values() if unit}
    if len(set(tables.values())) < len(UNITS):
        return []
    return [
        f"{tables['percent']} has accuracies in percent and {tables['fraction']} as fractions: correlations stay "
        "valid, and each regret is in the unit of its own column."
    ]


def _read(table: AccuracyTable, rows: Sequence[int], space: AnySpace) -> tuple[list[Any], list[str]]:
    """The architectures of these rows, each once, and their texts."""
    first: dict[str, int] = {}
    values = []
    for row in rows:
        try:
            value = space.parse(table.archs[row])
        except UserError as error:
            raise DataError(f"Row {row + 1} of {table.source} does not fit: {error}") from error
        text = space.text(value)
        if text in first:
            one, other = sorted((first[text], row))
            raise DataError(
                f"Architecture '{text}' is listed twice in {table.source} (rows {one + 1} and {other + 1}); "
                f"keep one of them."
            )
        first[text] = row
        values.append(value)
    return values, list(first)


def unit_of(target: str, numbers: Floats, source: str) -> str:
    """Percent or fraction for a column of accuracies, else empty; DataError for a mixture."""
    if numbers.min() < 0 or numbers.max() > UNITS["percent"]:
        return ""
    ((column, _),) = settled({described(target): numbers}, source).items()
    return column.unit if column.quantity == "accuracy" else ""


def _sizes(task: Task, values: Sequence[Any]) -> dict[str, Floats]:
    counted: dict[str, list[int]] = {"params": [], "flops": []}
    for value in values:
        try:
            size = task.size(value)
        except UserError:
            return {}
        for name in list(counted):
            try:
                counted[name].append(getattr(size, name))
            except UserError:
                del counted[name]
    return {name: np.array(counts, np.float64) for name, counts in counted.items()}


def _sharing(space: AnySpace, values: Sequence[Any], sizes: dict[str, Floats]) -> Sharing:
    if not hasattr(space, "key"):
        raise UserError(f"The space '{space.name}' has no key for isomorphic networks: leave out --share.")
    first: dict[str, int] = {}
    leaders = [first.setdefault(key_of(space, value), place) for place, value in enumerate(values)]
    differ = (
        np.any([size != size[leaders] for size in sizes.values()], axis=0) if sizes else np.zeros(len(values), bool)
    )
    unlike = {leader for leader, differs in zip(leaders, differ, strict=True) if differs}
    return Sharing(leaders, len(first), len(unlike))
