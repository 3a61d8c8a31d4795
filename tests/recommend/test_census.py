"""Missing and unseen values, and whole numbers in another spelling, counted against a loop over the rows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.errors import DataError
from epochzero.recommend.data.census import MISSING_TEXTS, limit, packed, unpacked
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.recommender import Predicted, predict_file
from epochzero.registry import spaces
from tests.command import epochzero

SHOP = Schema(
    "shop",
    "click",
    (Dense("age"),),
    (Categorical("city", "vocabulary", 50, 2), Categorical("item", "vocabulary"), Categorical("user", "hash", 5000)),
)
NAMES = ["click", "age", "city", "item", "user"]
CITIES = ["Bern", "Oslo", "Rome", "", "nan"]


def shop_rows(count: int, seed: int) -> list[dict[str, str]]:
    rng = Random(seed)
    return [
        {
            "click": str(int(rng.random() < 0.4)),
            "age": rng.choice(["", "31", "52"]),
            "city": rng.choice(CITIES),
            "item": str(rng.randrange(40)),
            "user": str(rng.randrange(60)),
        }
        for _ in range(count)
    ]


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, NAMES)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    place = tmp_path_factory.mktemp("shop")
    return encode(written(place / "shop.csv", shop_rows(800, 0)), SHOP, place / "table")


class IdSum(nn.Module):
    """A model whose prediction depends on every id."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1e-3))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        return (self.weight * (ids * torch.arange(1, 1 + ids.shape[1])).sum(1)).sin()


def predicted(table: CtrTable, place: Path, rows: list[dict[str, str]]) -> tuple[Predicted, list[float]]:
    """By the encoding as it is written and read back."""
    (place / "encoding.json").write_text(table.encoding.text())
    encoding = Encoding.read(place / "encoding.json")
    done = predict_file(IdSum(), written(place / "new.csv", rows), encoding, place / "p.csv")
    return done, [float(line.split(",")[1]) for line in (place / "p.csv").read_text().splitlines()[1:]]


def strange(rows: list[dict[str, str]], rng: Random) -> list[dict[str, str]]:
    """Some users are new, some items are written like 7.0, some cities are missing."""
    for row in rows:
        row["user"] = f"new{row['user']}" if rng.random() < 0.3 else row["user"]
        row["item"] += rng.choice(["", ".0", ".00"])
        row["city"] = "" if rng.random() < 0.8 else row["city"]
    return rows


def test_counts_are_those_of_a_loop(table: CtrTable, tmp_path: Path) -> None:
    rows = strange(shop_rows(300, 1), Random(2))
    done, _ = predicted(table, tmp_path, rows)
    train = [row for row, part in zip(shop_rows(800, 0), table.column("part"), strict=True) if part == 0]
    for name in ("city", "item", "user"):
        known = [row[name] for row in train]
        least = 2 if name == "city" else 1
        spelt = [re.sub(r"\.0+$", "", row[name]) for row in rows]
        counts = done.columns[name]
        assert counts.missing == spelt.count("")
        assert counts.unseen == sum(known.count(value) < least for value in spelt if value)
        assert counts.rewritten == sum(value != row[name] for value, row in zip(spelt, rows, strict=True))
        assert counts.like_missing == sum(value in MISSING_TEXTS for value in spelt)
        assert bool(counts.example) == bool(counts.unseen) and (not counts.unseen or counts.example not in known)
    assert done.columns["user"].unseen > 50 and done.columns["item"].rewritten > 100
    assert done.columns["age"].missing == sum(row["age"] == "" for row in rows)
    said = " ".join(done.remarks)
    assert len(done.remarks) == 3
    assert f"'user' has values that the training did not see in {done.columns['user'].unseen} of 300 rows" in said
    assert f"such as '{done.columns['user'].example}'" in said
    assert "'city' is missing in" in said and "'item' has whole numbers written like 266.0" in said


def test_whole_numbers_with_a_point_are_the_same_values(table: CtrTable, tmp_path: Path) -> None:
    rows = shop_rows(50, 3)
    pointed = [row | {"item": f"{row['item']}.0", "user": f"{row['user']}.0"} for row in rows]
    (first, plain), (second, same) = predicted(table, tmp_path, rows), predicted(table, tmp_path, pointed)
    assert same == plain and len(set(plain)) > 20
    assert first.remarks == () and second.columns["user"].rewritten == 50


def test_other_spellings_stay_other_values(tmp_path: Path) -> None:
    """Also in the table of a training, where 7 and 7.0 are one value."""
    texts = ["7", "7.0", "07", "7.5", "7.00", "-7.0", "-7", "0.0", "0", "00.0", "7.", "v7.0"] * 5
    rows = [
        {"click": str(n % 2), "age": "1", "city": "Bern", "item": text, "user": text} for n, text in enumerate(texts)
    ]
    table = encode(written(tmp_path / "t.csv", rows), SHOP, tmp_path / "table")
    ids = table.column("ids")
    for left, one in enumerate(texts[:12]):
        for right, other in enumerate(texts[:12]):
            same = (
                one == other or {one, other} <= {"7", "7.0", "7.00"} or {one, other} in ({"-7", "-7.0"}, {"0", "0.0"})
            )
            assert same == (ids[left, 1] == ids[right, 1]) == (ids[left, 2] == ids[right, 2]), (one, other)
    assert [
        one for one in table.about["remarks"] if "'item' has whole numbers written like 266.0 in 20 of 60 rows" in one
    ]


def test_what_is_said_of_the_table_of_a_training(table: CtrTable, tmp_path: Path) -> None:
    rows = shop_rows(800, 0)
    count = sum(row["city"] == "nan" for row in rows)
    (nan,) = table.about["remarks"]
    assert f"'city' has the text 'nan' in {count} of 800 rows" in nan and '"missing": ["nan"]' in nan
    half = [row | {"age": "", "user": "" if n % 2 else row["user"]} for n, row in enumerate(rows)]
    (missing, _) = encode(written(tmp_path / "t.csv", half), SHOP, tmp_path / "t").about["remarks"]
    assert missing == "2 columns are missing in half of the rows or more: age (100%), user (50%)."


def test_usual_shares_are_those_of_the_rows_held_out(table: CtrTable) -> None:
    rows, part = shop_rows(800, 0), table.column("part")
    for name in ("city", "item", "user"):
        known = [row[name] for row, one in zip(rows, part, strict=True) if one == 0]
        others = [row[name] for row, one in zip(rows, part, strict=True) if one]
        missing, unseen = table.encoding.usual[name]
        assert missing == sum(row[name] == "" for row in rows) / 800
        assert unseen == sum(value not in known for value in others if value) / len(others)


def test_a_file_without_a_known_category_is_refused(table: CtrTable, tmp_path: Path) -> None:
    rows = [row | {"city": "", "item": f"i{n}", "user": f"u{n}"} for n, row in enumerate(shop_rows(40, 4))]
    (tmp_path / "p.csv").write_text("old")
    with pytest.raises(
        DataError, match=r"No row of .* has a category that the training saw; the column 'item' has 'i0'"
    ):
        predicted(table, tmp_path, rows)
    assert (tmp_path / "p.csv").read_text() == "old"
    assert predicted(table, tmp_path, rows[:5])[0].columns["item"].unseen == 5


@pytest.mark.parametrize("usual", [0.0, 0.05, 0.3, 0.6, 1.0])
def test_limits_are_above_what_is_usual(usual: float) -> None:
    assert usual <= limit(usual) <= 1 and (usual == 1 or limit(usual) < 1)


def test_packed_rows_are_read_back_or_refused() -> None:
    seen = np.random.default_rng(0).random(1003) < 0.3
    seen[0] = True
    assert (unpacked(packed(seen), 1003) == seen).all()
    for text in ("no base64!", packed(seen[:100]), "AAAA"):
        with pytest.raises(DataError, match="train again"):
            unpacked(text, 1003)


def test_on_the_command_line(tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return epochzero("recommend", *words)

    written(tmp_path / "shop.csv", shop_rows(800, 0))
    (tmp_path / "shop.json").write_text(json.dumps(SHOP.json()))
    space = spaces["nasrec_small"]
    arch = space.text(space.smallest())
    trained = run(
        "train",
        f"--data={tmp_path}/shop.csv",
        f"--schema={tmp_path}/shop.json",
        f"--arch={arch}",
        f"--out={tmp_path}/run",
    )
    assert trained.code == 0 and "The column 'city' has the text 'nan'" in trained.err
    written(tmp_path / "new.csv", strange(shop_rows(300, 1), Random(2)))
    ask = ("predict", f"--model={tmp_path}/run", f"--data={tmp_path}/new.csv", f"--out={tmp_path}/p.csv")
    shown, told = run(*ask), run(*ask, "--json").json
    assert "The column 'user' has values that the training did not see" in " ".join(shown.err.split())
    assert told["columns"]["item"]["rewritten"] > 100 and len(told["remarks"]) == 3 and told["rows"] == 300
    written(tmp_path / "new.csv", [row | {"city": "x", "item": "x", "user": "x"} for row in shop_rows(30, 1)])
    refused = run(*ask)
    assert refused.code == 2 and "has a category that the training saw" in refused.err
