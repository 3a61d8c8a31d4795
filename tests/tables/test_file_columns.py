from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from epochzero.tables.columns import Column
from epochzero.tables.file import decoded, encoded


@pytest.mark.parametrize(
    ("numbers", "sections"),
    [
        (np.tile(np.arange(256) / 3, 9), {"codes0": "|u1", "values0": "<f8"}),
        (np.tile(np.arange(257) / 3, 9), {"codes0": "<u2", "values0": "<f8"}),
        (np.tile(np.arange(65_536) / 3, 2), {"codes0": "<u2", "values0": "<f8"}),
        (np.arange(1000) / 3, {"numbers0": "<f8"}),
        (np.arange(1000) / 4, {"numbers0": "<f4"}),
        (np.arange(65_537) / 4, {"numbers0": "<f4"}),
        (np.arange(65_537) / 3, {"numbers0": "<f8"}),
        (np.append(np.arange(65_537.0), 1e300), {"numbers0": "<f8"}),
        (np.append(np.arange(70_000.0), np.nan), {"numbers0": "<f4"}),
        (np.array([np.nan, 0.1, np.nan] * 9), {"codes0": "|u1", "values0": "<f8"}),
    ],
)
def test_no_digit_is_lost(numbers: np.ndarray[Any, Any], sections: dict[str, str]) -> None:
    made = encoded({Column("x"): numbers})
    assert {name: array.dtype.str for name, array in made.items()} == sections
    found = decoded(made, 0)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, numbers)
    assert decoded(made, 0, slice(1, 2)) == pytest.approx(numbers[1:2], nan_ok=True, abs=0)


def test_columns_are_numbered_in_their_order() -> None:
    made = encoded({Column("x"): np.arange(3.0), Column("y"): np.arange(3.0) / 3})
    assert [name[-1] for name in made] == ["0", "1"]
    assert decoded(made, 1).tolist() == [0, 1 / 3, 2 / 3]
