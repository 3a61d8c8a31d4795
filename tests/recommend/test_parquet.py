"""Parquet files and folders of them: the same numbers as from text, and bad rows named."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from epochzero.errors import DataError
from epochzero.recommend.data import parquet
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.parquet import is_parquet
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.data.table import CtrTable
from epochzero.registry import spaces
from tests.command import epochzero
from tests.recommend.click_files import SMALL, line, small, write

__all__ = ["small"]


def everything(table: CtrTable) -> list[bytes]:
    return [table.column(name).tobytes() for name in ("dense", "ids", "label", "part")]


def frame_of(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, schema_overrides={"code": pl.String})


def test_the_same_numbers_as_from_text(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one file, as one in many small blocks, as a folder of files and as a partitioned one."""
    text = encode(small, SMALL, tmp_path / "text")
    whole = frame_of(small)
    whole.write_parquet(tmp_path / "whole.parquet", row_group_size=7)
    (tmp_path / "parts").mkdir()
    for number in range(4):
        whole[5 * number : 5 * number + 5].write_parquet(tmp_path / "parts" / f"{number}.parquet")
    monkeypatch.setattr(parquet, "ROWS", 3)
    for source in ("whole.parquet", "parts"):
        assert is_parquet(tmp_path / source)
        table = encode(tmp_path / source, SMALL, tmp_path / f"{source}.table")
        assert everything(table) == everything(text)
        assert (table.encoding.vocabulary, table.encoding.seen) == (text.encoding.vocabulary, text.encoding.seen)
    assert not is_parquet(small)


def test_partitions_are_columns(small: Path, tmp_path: Path) -> None:
    """Of the split too; the rows are in the order of the paths."""
    whole = frame_of(small).with_columns(part=pl.Series(["train"] * 12 + ["val"] * 4 + ["test"] * 4))
    for part, city in ((p, c) for p in ("train", "val", "test") for c in ("Bern", "Oslo", "Rome")):
        folder = tmp_path / "t" / f"part={part}" / f"city={city}"
        folder.mkdir(parents=True)
        whole.filter(part=part, city=city).drop("part", "city").write_parquet(folder / "0.parquet")
    table = encode(tmp_path / "t", replace(SMALL, split="part"), tmp_path / "table")
    assert [table.size(part) for part in ("train", "val", "test")] == [12, 4, 4]
    ordered = whole.with_columns(pl.col("part").replace_strict({"test": 0, "train": 1, "val": 2}).alias("order"))
    ordered = ordered.sort("order", "city", maintain_order=True)
    codes = table.encoding.codes["city"]
    assert table.column("ids")[:, 0].tolist() == [codes.get(city, 1) for city in ordered["city"]]
    assert table.column("dense")[:, 1].tolist() == ordered["income"].to_list()


def test_every_kind_of_column(tmp_path: Path) -> None:
    """Numbers, truth values, dates and categories are the texts that a file of text would have."""
    count = 40
    columns: dict[str, Any] = {
        "click": pl.Series([n % 3 == 0 for n in range(count)]),
        "age": pl.Series([None if n % 5 == 0 else n for n in range(count)], dtype=pl.Int8),
        "income": pl.Series([float("nan") if n % 7 == 0 else n / 4 for n in range(count)]),
        "city": pl.Series([f"c{n % 4}" for n in range(count)], dtype=pl.Categorical),
        "user": pl.Series([None if n % 6 == 0 else float(n % 9) for n in range(count)]),
        "item": pl.Series([float("nan") if n % 6 == 0 else n % 9 for n in range(count)], dtype=pl.Float32),
        "paid": pl.Series([n % 2 == 0 for n in range(count)]),
        "day": pl.Series([date(2026, 1, 1 + n % 9) for n in range(count)]),
        "code": pl.Series([f"{n:x}" for n in range(count)]),
    }
    names = ("city", "user", "item", "paid", "day")
    schema = Schema(
        "kinds",
        "click",
        (Dense("age"), Dense("income", "none", -1.0)),
        (*(Categorical(name, "vocabulary") for name in names), Categorical("code", "hex", 9)),
    )
    pl.DataFrame(columns).write_parquet(tmp_path / "t.parquet")
    texts = [
        [
            str(int(n % 3 == 0)), "" if n % 5 == 0 else str(n), "" if n % 7 == 0 else str(n / 4), f"c{n % 4}",
            *(["" if n % 6 == 0 else str(n % 9)] * 2), "false" if n % 2 else "true", f"2026-01-0{1 + n % 9}", f"{n:x}",
        ]
        for n in range(count)
    ]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(",".join(row) for row in [list(columns), *texts]) + "\n")
    made, text = (encode(tmp_path / f"t.{end}", schema, tmp_path / end) for end in ("parquet", "csv"))
    assert everything(made) == everything(text) and made.encoding.vocabulary == text.encoding.vocabulary
    assert made.encoding.usual == text.encoding.usual
    assert any("'user' has whole numbers written like 266.0" in one for one in made.about["remarks"])


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("income", float("inf"), "has 'inf' in the column 'income'"),
        ("click", 2, "has '2' in the column 'click'"),
        ("click", None, "has 'None' in the column 'click'"),
        ("age", "old", "has 'old' in the column 'age'"),
        ("code", "xyz", "has 'xyz' in the column 'code'"),
    ],
)
def test_a_bad_row_is_named_or_put_aside(column: str, value: Any, says: str, small: Path, tmp_path: Path) -> None:
    good = frame_of(small)
    values = good[column].to_list()
    values[12] = value
    if isinstance(value, str):
        values = [None if one is None else str(one) for one in values]
    good.with_columns(pl.Series(column, values)).write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"Row 13 of .*bad\.parquet ") as raised:
        encode(tmp_path / "bad.parquet", SMALL, tmp_path / "strict")
    assert says in str(raised.value)
    table = encode(tmp_path / "bad.parquet", SMALL, tmp_path / "skip", bad_lines="skip")
    without = encode(write(tmp_path / "good.csv", [line(n) for n in range(20) if n != 12]), SMALL, tmp_path / "good")
    assert (table.count, table.skipped) == (19, 1) and everything(table) == everything(without)
    assert (table.folder / "skipped.tsv").read_text().startswith("13\t")


def test_files_that_do_not_fit(small: Path, tmp_path: Path) -> None:
    whole = frame_of(small)
    whole.write_parquet(tmp_path / "t.parquet")
    cut = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        encode(tmp_path / "cut.parquet", SMALL, tmp_path / "a")
    whole.rename({"city": "town"}).write_parquet(tmp_path / "town.parquet")
    with pytest.raises(DataError, match="there is no column 'city'"):
        encode(tmp_path / "town.parquet", SMALL, tmp_path / "b")
    whole.with_columns(pl.concat_list("city")).write_parquet(tmp_path / "lists.parquet")
    with pytest.raises(DataError, match=r"The column 'city' of .* holds lists"):
        encode(tmp_path / "lists.parquet", SMALL, tmp_path / "c")


def test_from_a_parquet_file_to_predictions(tmp_path: Path) -> None:
    """The rows of a partitioned folder are predicted as those of the text are, and the product's encoder is checked."""
    write(tmp_path / "t.csv", [line(row) for row in range(400)])
    frame_of(tmp_path / "t.csv").write_parquet(tmp_path / "t.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SMALL.json()))
    space = spaces["nasrec_small"]
    arch = space.text(space.smallest())
    ask = ["recommend", "train", f"--schema={tmp_path}/schema.json", f"--arch={arch}", "--batch-size=64"]
    assert epochzero(*ask, f"--data={tmp_path}/t.parquet", f"--out={tmp_path}/run").code == 0
    written = []
    for data in ("t.parquet", "t.csv"):
        ran = epochzero(
            "recommend", "predict", f"--model={tmp_path}/run", f"--data={tmp_path}/{data}", f"--out={tmp_path}/p.csv"
        )
        assert ran.code == 0, ran.err
        written.append([row.split(",")[1] for row in (tmp_path / "p.csv").read_text().splitlines()[1:]])
    assert written[0] == written[1] and len(set(written[0])) > 100
    ask = ["recommend", "export", f"--weights={tmp_path}/run", "--no-onnx", f"--out={tmp_path}/product"]
    assert epochzero(*ask, f"--data={tmp_path}/t.parquet").code == 0
