from __future__ import annotations

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.tables.columns import Column, described, settled


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("cifar10_test", Column("cifar10_test", "accuracy", "cifar10", "test")),
        ("imagenet16_val_12ep", Column("imagenet16_val_12ep", "accuracy", "imagenet16", "val", 12)),
        ("val_acc_108ep", Column("val_acc_108ep", "accuracy", "", "val", 108)),
        ("test_accuracy_seed2", Column("test_accuracy", "accuracy", "", "test", None, 2)),
        ("accuracy", Column("accuracy", "accuracy")),
        ("valid", Column("valid", "accuracy", "", "val")),
        ("params_M", Column("params_M", "params", unit="M")),
        ("params", Column("params", "params")),
        ("flops", Column("flops", "flops")),
        ("train_time_s", Column("train_time_s", "train_seconds")),
        ("cifar10_pixel3_latency", Column("cifar10_pixel3_latency", "latency")),
        ("cifar10_fpga_energy", Column("cifar10_fpga_energy", "energy")),
        ("x_test_seed01", Column("x_test_seed01")),
        *(
            (name, Column(name))
            for name in ("index", "cifar10_test_nseeds", "cifar10_test_std", "val_loss", "ninapro_nb360", "n_vertices")
        ),
    ],
)
def test_what_a_column_is_by_its_name(name: str, column: Column) -> None:
    assert described(name) == column
    assert column.full_name == name
    assert Column.from_json(column.as_json()) == column


def units(wanted: str | None = None, **columns: list[float]) -> dict[str, tuple[str, list[float]]]:
    given = {described(name): np.array(numbers) for name, numbers in columns.items()}
    return {column.name: (column.unit, n.tolist()) for column, n in settled(given, "t.csv", wanted).items()}


def test_units_are_found_and_nothing_is_converted_unasked() -> None:
    assert units(a_test=[0, 0.5, 1], flops=[1e9, 2, 3]) == {
        "a_test": ("fraction", [0, 0.5, 1]),
        "flops": ("", [1e9, 2, 3]),
    }
    assert units(a_test=[10, 50, 94.4]) == {"a_test": ("percent", [10, 50, 94.4])}
    chance = [0.83, *[30.0] * 20]
    assert units(a_test=chance) == {"a_test": ("percent", chance)}
    assert units(a_test=[np.nan, 0.5])["a_test"][0] == "fraction"


def test_units_are_converted_when_asked() -> None:
    both = {"a_test": [0.0, 0.5], "b_test": [10.0, 50.0], "params": [1.0, 2.0]}
    assert units("percent", **both) == {
        "a_test": ("percent", [0, 50]),
        "b_test": ("percent", [10, 50]),
        "params": ("", [1, 2]),
    }
    assert units("fraction", b_test=[10.0, 50.0]) == {"b_test": ("fraction", [0.1, 0.5])}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a_test": [0.5, 0.9], "b_val": [50, 90]},
            r"in percent \('b_val'\) and as fractions \('a_test'\). Choose one with --unit",
        ),
        ({"a_test": [0.5, 0.9, 91, 92]}, "seems to mix fractions and percents: 2 of its 4 values are at most 1"),
        ({"a_test": [50, 101]}, "is named as an accuracy but holds values from 50 to 101"),
        ({"a_test": [-1, 0.5]}, "is named as an accuracy but holds values from -1 to 0.5"),
    ],
)
def test_units_that_cannot_be(columns: dict[str, list[float]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        units(None, **columns)


def test_a_unit_that_the_source_states_has_to_fit() -> None:
    low = Column("x", "accuracy", unit="percent")
    (made,) = settled({low: np.array([0.5, 0.9])}, "t.csv", "fraction").values()
    assert made.tolist() == pytest.approx([0.005, 0.009])
    with pytest.raises(UserError, match="holds values from 50 to 90"):
        settled({Column("x", "accuracy", unit="fraction"): np.array([50.0, 90.0])}, "t.csv")


def test_a_column_that_mixes_is_refused_even_with_a_unit() -> None:
    with pytest.raises(UserError, match="seems to mix"):
        units("percent", a_test=[0.5, 0.9, 91, 92])
    with pytest.raises(UserError, match="percent or fraction, not 'per mille'"):
        units("per mille", a_test=[0.5])
