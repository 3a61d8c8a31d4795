"""The meaning of a column: an accuracy (of which data, after how many epochs, which run) or a cost.

Formats state it. In a table of unknown origin the column's name implies it:

    cifar10_test            accuracy on the test set of cifar10
    val_acc_12ep_seed1      validation accuracy after 12 epochs, run 1
    params_M                parameters in millions
    cifar10_pixel3_latency  latency
    anything else           a number of unknown meaning
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, UserError

Quantity = Literal["accuracy", "params", "flops", "train_seconds", "latency", "energy", "other"]
Numbers = NDArray[np.float64]

COSTS: tuple[Quantity, ...] = ("params", "flops", "train_seconds", "latency", "energy")
SPLITS = {"val": "val", "valid": "val", "validation": "val", "test": "test", "train": "train"}
ACCURACY = {"acc", "accuracy", "top1"}
NAMED: dict[str, Quantity] = {
    "params": "params",
    "parameters": "params",
    "flops": "flops",
    "macs": "flops",
    "latency": "latency",
    "energy": "energy",
}
UNITS = {"fraction": 1.0, "percent": 100.0}
"""unit of an accuracy, and the value of a perfect one"""
CHANCE = 0.1
"""largest share of values up to 1 in a column of percents: 2.2 % of NAS-Bench-201 are at chance, 0.83 to 1 %"""


@dataclass(frozen=True, slots=True)
class Column:
    """The meaning of the numbers in a column."""

    name: str
    """name without the seed"""
    quantity: Quantity = "other"
    dataset: str = ""
    split: str = ""
    """val, test or train; empty unless it is an accuracy"""
    epochs: int | None = None
    """epochs of training; None if the source does not say"""
    seed: int | None = None
    """number of the run; None for a mean over runs or a single run"""
    unit: str = ""
    """percent or fraction for an accuracy; M for millions"""

    @property
    def full_name(self) -> str:
        return self.name if self.seed is None else f"{self.name}_seed{self.seed}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Column:
        column = Column(**fields)
        if column.quantity not in get_args(Quantity):
            raise ValueError(f"there is no quantity {column.quantity!r}")
        texts = (column.name, column.dataset, column.split, column.unit)
        if {*map(type, texts)} != {str} or not {type(column.epochs), type(column.seed)} <= {int, type(None)}:
            raise ValueError(f"column {str(column.name)[:50]!r} is described by values of another type")
        return column


def described(name: str) -> Column:
    """Returns the meaning of a column that its name implies."""
    seed = re.search(r"_seed(0|[1-9]\d*)$", name)
    base = name[: seed.start()] if seed else name
    words = [word for word in re.split(r"[_\-. ]+", base.lower()) if word]
    epochs = next((int(match[1]) for word in words if (match := re.fullmatch(r"(\d+)ep(?:ochs?)?", word))), None)
    splits = [SPLITS[word] for word in words if word in SPLITS]
    cost = next((NAMED[word] for word in words if word in NAMED), None)
    left = [w for w in words if w not in SPLITS and w not in ACCURACY and not re.fullmatch(r"\d+ep(?:ochs?)?", w)]
    numbered = int(seed[1]) if seed else None
    if cost is not None:
        return Column(base, cost, epochs=epochs, seed=numbered, unit="M" if words[-1] == "m" else "")
    if "time" in words and splits == ["train"]:
        return Column(base, "train_seconds", epochs=epochs, seed=numbered)
    if (len(splits) == 1 and len(left) <= 1) or ACCURACY & set(words):
        odd = {"std", "loss", "nseeds", "top5", "time"} & set(words)
        if not odd:
            return Column(base, "accuracy", "_".join(left), (splits or [""])[0], epochs, numbered)
    return Column(base, epochs=epochs, seed=numbered)


def settled(columns: Mapping[Column, Numbers], source: str, wanted: str | None = None) -> dict[Column, Numbers]:
    """Returns the columns with the unit of every accuracy, converted if a unit is wanted.

    A column whose values are all in [0, 1] holds fractions, one with values up to 100 holds percents. A table with both
    kinds of columns is refused unless a unit is wanted; a column that mixes them is always refused.
    """
    if wanted is not None and wanted not in UNITS:
        raise UserError(f"The unit of accuracies is percent or fraction, not {wanted!r}.")
    units = {col: _unit(col, numbers, source) for col, numbers in columns.items() if col.quantity == "accuracy"}
    by_unit = {unit: column.full_name for column, unit in reversed(units.items())}
    if len(by_unit) > 1 and wanted is None:
        raise DataError(
            f"{source} has accuracies in percent ('{by_unit['percent']}') and as fractions "
            f"('{by_unit['fraction']}'). Choose one with --unit percent or --unit fraction."
        )
    converted: dict[Column, Numbers] = {}
    for column, numbers in columns.items():
        if column not in units:
            converted[column] = numbers
            continue
        before, after = units[column], wanted or units[column]
        same = before == after
        converted[replace(column, unit=after)] = numbers if same else numbers / UNITS[before] * UNITS[after]
    return converted


def _unit(column: Column, numbers: Numbers, source: str) -> str:
    known = numbers[~np.isnan(numbers)]
    where = f"Column '{column.full_name}' of {source}"
    if len(known) and not (known.min() >= 0 and known.max() <= UNITS[column.unit or "percent"]):
        raise DataError(
            f"{where} is named as an accuracy but holds values from {known.min():g} to {known.max():g}. "
            f"An accuracy is 0 to 1 or 0 to 100: rename the column or fix the values."
        )
    if column.unit:
        return column.unit
    small = known <= 1
    if small.all():
        return "fraction"
    if small.mean() > CHANCE:
        raise DataError(
            f"{where} seems to mix fractions and percents: {int(small.sum())} of its {len(known)} values are at "
            f"most 1, and the largest is {known.max():g}. Write all values in one unit."
        )
    return "percent"
