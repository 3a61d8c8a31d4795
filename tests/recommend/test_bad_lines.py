"""Hostile tables: one clear sentence each, lines named by number, nothing lost."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from epochzero.errors import DataError, UserError
from epochzero.recommend.data import encoder as ctr_encoder
from epochzero.recommend.data import lines as ctr_lines
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.schema import Categorical, Dense, Schema, load_schema
from tests.recommend.click_files import HEADER, SMALL, line, small, write

__all__ = ["small"]

BAD = {
    "1,2,3,Bern,u,1": "has 6 columns where 7 should be",
    "1,2,3,Bern,u,1,x,y": "has 8 columns where 7 should be",
    "1": "has 1 column where 7 should be",
    "1,old,3,Bern,u,1,x": "has 'old' in the column 'age', where a number should be",
    "1,nan,3,Bern,u,1,x": "has 'nan' in the column 'age', which is not a finite number",
    "1,2,-inf,Bern,u,1,x": "has '-inf' in the column 'income', which is not a finite number",
    "1,2,1e60,Bern,u,1,x": "has '1e60' in the column 'income', which is not a finite number",
    "1,2,3,Bern,u,xyz,x": "has 'xyz' in the column 'code', where a hexadecimal number should be",
    "1,2,3,Bern,u,11112222333344445,x": "where a hexadecimal number should be",
    "2,2,3,Bern,u,1,x": "has the label '2', where 0 or 1 should be",
    ",2,3,Bern,u,1,x": "has the label '', where 0 or 1 should be",
    '1,2,3,"Bern,u,1,x': "has quotes that do not match",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_named_or_put_aside(bad: str, tmp_path: Path) -> None:
    lines = [line(row) for row in range(30)]
    path = write(tmp_path / "bad.csv", [*lines[:12], bad, *lines[12:]])
    with pytest.raises(DataError, match=r"Line 14 of .*bad\.csv ") as raised:
        encode(path, SMALL, tmp_path / "strict")
    assert BAD[bad] in str(raised.value)
    assert not (tmp_path / "strict").exists()
    table = encode(path, SMALL, tmp_path / "skip", bad_lines="skip")
    assert (table.count, table.skipped) == (30, 1)
    number, why, text = (table.folder / "skipped.tsv").read_text().rstrip("\n").split("\t")
    assert (number, text) == ("14", bad)
    assert BAD[bad] in why
    good = encode(write(tmp_path / "good.csv", lines), SMALL, tmp_path / "good")
    assert good.column("ids").tolist() == table.column("ids").tolist()
    assert good.column("dense").tolist() == table.column("dense").tolist()


def test_bytes_that_are_no_text(small: Path, tmp_path: Path) -> None:
    small.write_bytes(small.read_bytes().replace(b"Rome,u7", b"Ro\xff\xfe,u7"))
    with pytest.raises(DataError, match=r"Line 9 of .* is not UTF-8 text"):
        encode(small, SMALL, tmp_path / "t")
    assert encode(small, SMALL, tmp_path / "t", bad_lines="skip").count == 19


def test_one_line_too_long_and_one_too_short_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    lines = [line(row) for row in range(30)]
    lines[4], lines[9] = f"{lines[4]},y", lines[9].removesuffix(",x")
    table = encode(write(tmp_path / "a.csv", lines), SMALL, tmp_path / "t", bad_lines="skip")
    assert (table.folder / "skipped.tsv").read_text().count("columns where 7 should be") == 2
    assert table.count == 28


def test_lines_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctr_lines.blocks, "__defaults__", (100,))
    lines = [line(row) for row in range(300)]
    lines[250] = "broken"
    lines[20] = ""
    with pytest.raises(DataError, match="Line 252 of"):
        encode(write(tmp_path / "a.csv", lines), SMALL, tmp_path / "t")


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n1,2\n"])
def test_an_empty_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_bytes(content)
    for schema in (SMALL, "criteo"):
        with pytest.raises(DataError, match=r"empty.csv is empty"):
            encode(path, schema, tmp_path / "t")


def test_tables_without_enough_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no rows: give"):
        encode(write(tmp_path / "a.csv", []), SMALL, tmp_path / "t")
    with pytest.raises(DataError, match=r"No line of .* is good; line \d+, the first of 1 bad ones, has "):
        encode(write(tmp_path / "a.csv", ["1,2"]), SMALL, tmp_path / "t", bad_lines="skip")
    with pytest.raises(DataError, match=r"has 9 rows: a split 8/1/1 needs at least 10"):
        encode(write(tmp_path / "a.csv", [line(row) for row in range(9)]), SMALL, tmp_path / "t")
    lines = [f"{line(row)},test" for row in range(12)]
    with pytest.raises(DataError, match="says train in the column 'part'"):
        encode(write(tmp_path / "a.csv", lines, header=f"{HEADER},part"), replace(SMALL, split="part"), tmp_path / "t")


def test_without_validation_rows_a_tenth_of_the_training_rows_validates(tmp_path: Path) -> None:
    lines = [f"{line(row)},{'train' if row < 40 else 'test'}" for row in range(50)]
    table = encode(
        write(tmp_path / "a.csv", lines, header=f"{HEADER},part"), replace(SMALL, split="part"), tmp_path / "t"
    )
    assert [table.size(part) for part in ("train", "val", "test")] == [36, 4, 10]
    assert 1 <= table.clicks("val") <= 3  # of each label its share: a third of the rows are clicks


def test_schemas_that_do_not_fit(small: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"'criteo' does not fit .*: it has 40 columns, and the lines of the file have 7"
    ):
        encode(small, "criteo", tmp_path / "t")
    with pytest.raises(DataError, match=r"'avazu' does not fit .*: there is no column 'id'"):
        encode(small, "avazu", tmp_path / "t")
    with pytest.raises(DataError, match=r"no column 'citty'. Did you mean 'city'\? The columns are click, age"):
        encode(small, replace(SMALL, categorical=(Categorical("citty"),)), tmp_path / "t")
    twice = write(tmp_path / "twice.csv", [line(row) for row in range(12)], header=HEADER.replace("note", "city"))
    with pytest.raises(DataError, match="two columns called 'city'"):
        encode(twice, SMALL, tmp_path / "t")


def test_files_that_cannot_be_read(small: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.csv cannot be opened \(No such file"):
        encode(tmp_path / "nowhere.csv", SMALL, tmp_path / "t")
    with pytest.raises(DataError, match="cannot be opened"):
        encode(tmp_path, SMALL, tmp_path / "t")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(small.read_bytes())[:-20])
    with pytest.raises(DataError, match="cannot be read after line"):
        encode(cut, SMALL, tmp_path / "t")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UserError, match="holds something other than a table"):
        encode(small, SMALL, tmp_path / "full")
    assert (tmp_path / "full" / "mine").exists()
    with pytest.raises(UserError, match="takes strict or skip, not 'lenient'"):
        encode(small, SMALL, tmp_path / "t", bad_lines="lenient")


def test_too_many_values_for_a_vocabulary(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctr_encoder, "MOST_VALUES", 2)
    with pytest.raises(DataError, match=r"'city' of .* has more than 2 values, .* encoding hash"):
        encode(small, SMALL, tmp_path / "t")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "has no fields"),
        ("{", "cannot be read"),
        ('{"dense": ["a"]}', "has no label"),
        ('{"label": "y"}', "names no dense and no categorical column"),
        ('{"label": "y", "dense": "a"}', "has to be a list of columns"),
        ('{"label": "y", "dense": ["a", "a"]}', "names the column 'a' twice"),
        ('{"label": "a", "dense": ["a"]}', "both as a feature and as label"),
        ('{"label": "y", "dense": [3]}', "give a name, or a table with a name"),
        ('{"label": "y", "dense": ["a"], "lable": 1}', "unknown field 'lable'. Did you mean 'label'"),
        ('{"label": 3, "dense": ["a"]}', "has label = 3, which is of the wrong kind"),
        ('{"label": "y", "dense": ["a"], "separator": "||"}', "has to be one ASCII character"),
        ('{"label": "y", "dense": ["a"], "separator": "§"}', "has to be one ASCII character"),
        ('{"label": "y", "dense": [{"name": "a", "transform": "exp"}]}', "transform 'exp': use log or none"),
        ('{"label": "y", "categorical": ["a"], "encoding": "md5"}', "encoding 'md5': use hash, hex, vocabulary"),
        ('{"label": "y", "categorical": ["a"], "rows": 1}', "has 1 rows: give 2 to"),
        ('{"label": "y", "categorical": ["a"], "rows": true}', "rows = True, which is of the wrong kind"),
        ('{"label": "y", "categorical": ["a"], "min_count": 0}', "min_count 0: give 1 or more"),
        ('{"label": "y", "dense": ["a"], "columns": ["y", "b"]}', "has no 'a' among its columns"),
    ],
)
def test_bad_schemas(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        load_schema(path)
    assert why in str(raised.value)


def test_unknown_schemas() -> None:
    with pytest.raises(DataError, match=r"No schema is called 'critoe'. Did you mean 'criteo'\?"):
        load_schema("critoe")
    with pytest.raises(DataError, match="check that it exists"):
        load_schema("nowhere.toml")


def test_fill_has_to_be_finite() -> None:
    with pytest.raises(DataError, match="fill nan"):
        Schema("s", "y", (Dense("a", fill=float("nan")),), ())
