"""The encoder of a product against the reading of tables, row by row, also without epochzero."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from epochzero.recommend.data.ingest import encode, encoder_of
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.product_encoder import Encoder
from epochzero.recommend.recommender import SOURCE
from tests.fresh import Fresh

TABLE = Schema(
    "odd",
    "click",
    (Dense("age"), Dense("income", "none", -1.5)),
    (Categorical("city", "vocabulary", 6, 2), Categorical("user", "hash", 50), Categorical("code", "hex", 30)),
    missing=("-", "nan"),
)
NAMES = ["click", "age", "income", "city", "user", "code"]
AGES = ["", "0", "31", "1e3", "-4", "0.25", "nan", "7777777"]
CITIES = ["", "Bern", "Zürich", "266", "266.0", "-", "007.0", "Oslo, N", 'quo"ted', " Rome", "tab\there", "x" * 40]
CODES = ["", "0", "ff", "FFFFFFFFFFFFFFFF", "1a", "-"]


def odd_rows(count: int, seed: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)

    def of(texts: Sequence[str]) -> str:
        return texts[int(rng.integers(len(texts)))]

    users = ["", "é" * 5, *(f"u{number}" for number in range(40)), "12.0", "12", "-0.0", "nan"]
    return [
        dict(zip(NAMES, [of("01"), of(AGES), of(AGES), of(CITIES), of(users), of(CODES)], strict=True))
        for _ in range(count)
    ]


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, NAMES)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("capped", [None, (4, 7, 2), (1, 50, 30)])
def test_every_row_has_the_same_numbers(capped: tuple[int, ...] | None, tmp_path: Path, fresh: Fresh) -> None:
    table = encode(written(tmp_path / "t.csv", odd_rows(400, 0)), TABLE, tmp_path / "table")
    encoding = table.encoding if capped is None else table.encoding.capped(capped)
    (tmp_path / "encoding.json").write_text(encoding.text())
    rows = odd_rows(300, 1)
    blocks = list(encoder_of(encoding, written(tmp_path / "new.csv", rows)))
    dense = np.concatenate([block.dense for block in blocks])
    ids = np.concatenate([encoding.folded(block.ids) for block in blocks])
    found, places = Encoder(tmp_path / "encoding.json").rows(rows)
    np.testing.assert_allclose(found, dense, rtol=2e-7)
    assert found.dtype == np.float32 and (places == ids).all() and places.dtype == np.int64
    assert ids.shape == (300, 3) and len(np.unique(ids[:, 1])) > 5
    if capped is None:
        (tmp_path / "encoder.py").write_text(SOURCE)
        script = "import sys; sys.modules['epochzero'] = sys.modules['torch'] = sys.modules['polars'] = None\n"
        script += "sys.argv = ['encoder.py', 'new.csv', 'rows.npz']\nimport encoder; encoder.main()\n"
        assert fresh(script, folder=tmp_path) == (0, "", "")
        alone = np.load(tmp_path / "rows.npz")
        assert (alone["ids"] == ids).all() and (alone["dense"] == found).all()


def test_no_rows_and_columns_that_are_absent(tmp_path: Path) -> None:
    table = encode(written(tmp_path / "t.csv", odd_rows(100, 0)), TABLE, tmp_path / "table")
    (tmp_path / "encoding.json").write_text(table.encoding.text())
    reads = Encoder(tmp_path / "encoding.json")
    assert [one.shape for one in reads.rows([])] == [(0, 2), (0, 3)]
    dense, ids = reads.rows([{}, {"age": None, "city": "", "user": "-"}])
    assert (dense == np.array([[0, -1.5]] * 2)).all() and (ids == 0).all()
    for row, says in (
        ({"age": "old"}, "'old' in the column 'age'"),
        ({"code": "xyz"}, "hexadecimal"),
        ({"age": "inf"}, "finite"),
    ):
        with pytest.raises(ValueError, match=says):
            reads.rows([row])
