"""What a column of a benchmark is: an accuracy (of which data, after how long, which run) or a cost.

Importers say it outright. For tables of other people it is read off the column's name:

    cifar10_test            accuracy on the test set of cifar10
    val_acc_12ep_seed1      validation accuracy after 12 epochs, run 1
    params_M                parameters in millions
    cifar10_pixel3_latency  latency
    anything else           a number that nothing more is known of
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
"""of an accuracy, and what a perfect one is"""
CHANCE = 0.1
"""Share of values up to 1 that a column of percents may have: 2.2 % of NAS-Bench-201 are at chance, 0.83 to 1 %."""


@dataclass(frozen=True, slots=True)
class Column:
    """What the numbers of a column are."""

    name: str
    """without the seed"""
    quantity: Quantity = "other"
    dataset: str = ""
    split: str = ""
    """val, test or train; empty for what is no accuracy"""
    epochs: int | None = None
    """of training; None where the source does not say"""
    seed: int | None = None
    """which run; None for a mean over runs, or where there was one"""
    unit: str = ""
    """of an accuracy: percent or fraction; M for millions"""

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
        return column


def described(name: str) -> Column:
    """What a column of a table is, by its name."""
    seed = re.search(r"_seed(0|[1-9]\d*)$", name)
    base = name[: seed.start()] if seed else name
    words = [word for word in re.split(r"[_\-. ]+", base.lower()) if word]
    epochs = next((int(found[1]) for word in words if (found := re.fullmatch(r"(\d+)ep(?:ochs?)?", word))), None)
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
    """The same columns with the unit of every accuracy, converted only where a unit is asked for.

    A column whose values are all in [0, 1] holds fractions, one with values up to 100 percents. Columns of both
    kinds in one table are refused unless a unit is asked for, and so is, always, a column that mixes them.
    """
    if wanted is not None and wanted not in UNITS:
        raise UserError(f"The unit of accuracies is percent or fraction, not {wanted!r}.")
    found = {column: _unit(column, numbers, source) for column, numbers in columns.items() if _is_accuracy(column)}
    by_unit = {unit: column.full_name for column, unit in reversed(found.items())}
    if len(by_unit) > 1 and wanted is None:
        raise DataError(
            f"{source} has accuracies in percent ('{by_unit['percent']}') and as fractions "
            f"('{by_unit['fraction']}'): say with --unit percent or --unit fraction what they should become."
        )
    made: dict[Column, Numbers] = {}
    for column, numbers in columns.items():
        if column not in found:
            made[column] = numbers
            continue
        before, after = found[column], wanted or found[column]
        converted = numbers if before == after else numbers / UNITS[before] * UNITS[after]
        made[replace(column, unit=after)] = converted
    return made


def _is_accuracy(column: Column) -> bool:
    return column.quantity == "accuracy"


def _unit(column: Column, numbers: Numbers, source: str) -> str:
    known = numbers[~np.isnan(numbers)]
    where = f"Column '{column.full_name}' of {source}"
    if len(known) and not (known.min() >= 0 and known.max() <= UNITS[column.unit or "percent"]):
        raise DataError(
            f"{where} is named as an accuracy but holds values from {known.min():g} to {known.max():g}: "
            f"rename it, or mend the values; an accuracy is 0 to 1 or 0 to 100."
        )
    if column.unit:
        return column.unit
    small = known <= 1
    if small.all():
        return "fraction"
    if small.mean() > CHANCE:
        raise DataError(
            f"{where} seems to mix fractions and percents: {int(small.sum())} of its {len(known)} values are at "
            f"most 1, the largest is {known.max():g}. Write all of them in one unit."
        )
    return "percent"
