"""Columns of numbers in the fewest bytes that keep every digit.

A column with few different values, such as an accuracy on 10,000 images, is stored as the list of values (`values`) and
an index of one or two bytes per row (`codes`); others as float32 if that is exact, else as float64 (`numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.tables.columns import Column, Numbers

CODES = (np.uint8, np.uint16)

Sections = Mapping[str, NDArray[Any]]


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
