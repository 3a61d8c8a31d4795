"""Click-through tables: values, splits, streaming, vocabularies, samples of real tables."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from epochzero.errors import DataError, UserError
from epochzero.recommend.data import lines as ctr_lines
from epochzero.recommend.data.encoder import hashed_rows
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import encode, encoder_of
from epochzero.recommend.data.schema import BUILT_IN, Categorical, Schema, load_schema
from epochzero.recommend.data.split import folds, parts
from epochzero.recommend.data.synthetic import CHUNK, Planted, synthetic
from epochzero.recommend.data.table import STRETCH, CtrTable, open_table
from epochzero_papers.sigeo.click_text import write_text
from tests.recommend.click_files import HEADER, SMALL, line, sample, small, write

__all__ = ["small"]


def everything(table: CtrTable) -> list[bytes]:
    return [table.column(name).tobytes() for name in ("dense", "ids", "label", "part")]


def slow_hash(text: str) -> int:
    data = text.encode()
    mixed = len(data)
    for first in range(0, len(data), 8):
        mixed = (mixed ^ int.from_bytes(data[first : first + 8], "big")) * 0x9E3779B97F4A7C15 % 2**64
        mixed ^= mixed >> 32
    return mixed


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=20), st.integers(2, 10**6))
def test_hashes_are_those_of_the_formula(texts: list[str | None], rows: int) -> None:
    found = hashed_rows(pl.Series(texts, dtype=pl.String), rows)
    assert found.tolist() == [0 if text is None else 1 + slow_hash(text) % (rows - 1) for text in texts]


def test_hashes_spread_evenly() -> None:
    found = hashed_rows(pl.Series([f"user{number}" for number in range(100_000)]), 101)
    assert np.bincount(found)[1:].min() > 850
    assert np.bincount(found)[1:].max() < 1150


def test_every_value_by_hand(small: Path, tmp_path: Path) -> None:
    table = encode(small, replace(SMALL, split=""), tmp_path / "t")
    dense, ids, label = table.column("dense"), table.column("ids"), table.column("label")
    assert table.count == 20
    assert table.rows == (5, 50, 8)
    for row in range(20):
        assert dense[row].tolist() == pytest.approx([math.log(1 + row), row / 2])
        assert label[row] == (row % 3 == 0)
        assert ids[row, 1] == 1 + slow_hash(f"u{row}") % 49
        assert ids[row, 2] == 1 + row % 7
    train = table.column("part") == 0
    of_city = {city: [r for r in range(20) if train[r] and line(r).split(",")[3] == city] for city in ("Bern", "Oslo")}
    assert len(of_city["Bern"]) > len(of_city["Oslo"])
    assert set(ids[of_city["Bern"], 0]) == {2}
    assert table.encoding.codes["city"]["Bern"] == 2
    assert sorted(table.encoding.codes["city"]) == ["Bern", "Oslo", "Rome"]


def test_missing_values_have_a_row_and_a_fill(tmp_path: Path) -> None:
    lines = [line(row) for row in range(12)]
    lines[3] = "1,,,,NULL,,"
    table = encode(write(tmp_path / "a.csv", lines), replace(SMALL, missing=("NULL",)), tmp_path / "t")
    assert table.column("ids")[3].tolist() == [0, 0, 0]
    assert table.column("dense")[3].tolist() == [0.0, -1.0]


def test_rare_and_unseen_values_share_a_bucket_of_their_own(tmp_path: Path) -> None:
    lines = [f"{row % 2},{row},0,{'often' if row < 8 else 'once' if row == 8 else 'later'},u,1,x" for row in range(12)]
    told = [f"{text},{'train' if row < 9 else 'dev' if row == 9 else 'test'}" for row, text in enumerate(lines)]
    path = write(tmp_path / "a.csv", told, header=f"{HEADER},part")
    table = encode(path, replace(SMALL, split="part"), tmp_path / "t")
    assert table.encoding.codes["city"] == {"often": 2}
    assert table.column("ids")[:, 0].tolist() == [2] * 8 + [1] * 4
    assert [table.size(part) for part in ("train", "val", "test")] == [9, 1, 2]
    other = write(tmp_path / "b.csv", ["5,1,nowhere,u,1", "5,1,often,u,1"], header="age,income,city,user,code")
    (block,) = encoder_of(table.encoding, other)
    assert block.ids[:, 0].tolist() == [1, 2]
    assert block.line.tolist() == [2, 3]
    (tmp_path / "encoding.json").write_text(table.encoding.text())
    assert Encoding.read(tmp_path / "encoding.json") == table.encoding
    (tmp_path / "encoding.json").write_text("{}")
    with pytest.raises(DataError, match="is not the encoding of a table"):
        Encoding.read(tmp_path / "encoding.json")


@pytest.mark.parametrize(("count", "clicks"), [(20, 10), (57, 13), (1000, 217), (1003, 990)])
def test_folds_are_those_of_scikit_learn(count: int, clicks: int) -> None:
    labels = np.random.default_rng(count).permutation(np.arange(count) < clicks).astype(np.uint8)
    theirs = np.empty(count)
    for fold, (_, rows) in enumerate(StratifiedKFold(10, shuffle=True, random_state=2018).split(labels, labels)):
        theirs[rows] = fold
    assert (folds(labels) == theirs).all()
    assert (parts(labels) == np.maximum(0, theirs - 7)).all()


def test_folds_of_one_label() -> None:
    assert sorted(np.bincount(folds(np.zeros(23, np.uint8))).tolist()) == [2] * 7 + [3] * 3
    assert len(folds(np.zeros(0, np.uint8))) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(0, 6), st.one_of(st.none(), st.integers(1, 3000)))
def test_batches_are_the_rows_in_order(size: int, start: int, stop: int | None) -> None:
    table = _numbered()
    rows = np.flatnonzero(np.isin(table.column("part"), [0, 2]))[:stop][start * size :]
    batches = list(table.batches("train", "test", size=size, start=start, stop=stop))
    assert [len(batch.label) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    seen = torch.cat([batch.dense for batch in batches]) if batches else torch.zeros(0, table.num_dense)
    assert torch.equal(seen, torch.from_numpy(table.column("dense")[rows]))


_kept: dict[str, CtrTable] = {}


def _numbered() -> CtrTable:
    return _kept["table"]


@pytest.fixture(scope="module", autouse=True)
def _table(tmp_path_factory: pytest.TempPathFactory) -> None:
    _kept["table"] = synthetic(
        tmp_path_factory.mktemp("ctr") / "numbered", 1500, Planted(sizes=(9, 5), pairs=(), gates=())
    )


def test_a_batch_has_the_agreed_form() -> None:
    table = _numbered()
    dense, ids, label = next(table.batches("train", size=32))
    assert (dense.dtype, ids.dtype, label.dtype) == (torch.float32, torch.int64, torch.float32)
    assert (dense.shape, ids.shape, label.shape) == ((32, 4), (32, 2), (32,))
    assert bool((ids >= 0).all())
    assert bool((ids < torch.tensor(table.rows)).all())
    assert set(label.tolist()) <= {0.0, 1.0}


def test_batches_over_several_stretches(tmp_path: Path) -> None:
    table = synthetic(tmp_path / "t", 2 * STRETCH + 77, Planted(sizes=(4,), pairs=(), gates=(), num_dense=0))
    labels = torch.cat([batch.label for batch in table.batches("train", "val", "test", size=1000, start=60)])
    assert labels.tolist() == table.column("label")[60_000:].tolist()
    assert table.size("train", "val", "test") == table.count
    assert table.clicks("train") + table.clicks("val", "test") == table.column("label").sum()


@pytest.mark.parametrize("size", [64, 200, 1 << 20])
def test_blocks_of_any_size_give_the_same_table(
    small: Path, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = encode(small, SMALL, tmp_path / "whole")
    monkeypatch.setattr(ctr_lines.blocks, "__defaults__", (size,))
    cut = encode(small, SMALL, tmp_path / "cut")
    assert everything(cut) == everything(whole)
    assert cut.encoding == whole.encoding


@pytest.mark.parametrize("kind", ["gzip", "crlf", "mark", "no last break", "quoted", "spaced"])
def test_other_spellings_give_the_same_table(small: Path, tmp_path: Path, kind: str) -> None:
    text = small.read_bytes()
    path = tmp_path / "other.csv"
    quoted = text.replace(b"Bern", b'"Bern"').replace(b",x", b',"x, y"')
    path.write_bytes(
        {
            "gzip": gzip.compress(text),
            "crlf": text.replace(b"\n", b"\r\n"),
            "mark": b"\xef\xbb\xbf" + text,
            "no last break": text.rstrip(b"\n"),
            "quoted": quoted,
            "spaced": text.replace(b"\n1,", b"\n\n1,") + b"\n\n",
        }[kind]
    )
    assert everything(encode(path, SMALL, tmp_path / "b")) == everything(encode(small, SMALL, tmp_path / "a"))


def test_a_table_is_read_once(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encode(small, SMALL, tmp_path / "t")
    monkeypatch.setattr("epochzero.recommend.data.ingest.Writer", None)
    assert everything(encode(small, SMALL, tmp_path / "t")) == everything(first)
    monkeypatch.undo()
    other = encode(small, replace(SMALL, categorical=(Categorical("user"),)), tmp_path / "t")
    assert other.rows == (100_000,)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("t.")] == []


def test_schemas_from_files(tmp_path: Path) -> None:
    toml = tmp_path / "mine.toml"
    toml.write_text(
        'label = "click"\nmin_count = 3\nrows = 70\ndense = ["age", {name = "income", transform = "none"}]\n'
        'categorical = ["city", {name = "user", encoding = "vocabulary", rows = 9}]\n'
    )
    schema = load_schema(toml)
    assert schema.name == "mine"
    assert schema.dense[1].transform == "none"
    assert schema.categorical == (Categorical("city", "hash", 70, 3), Categorical("user", "vocabulary", 9, 3))
    assert Schema.of(schema.json(), "again") == schema
    for known in BUILT_IN.values():
        assert Schema.of(known.json(), "again") == known


def test_built_in_schemas_have_the_published_columns() -> None:
    sizes = {name: (len(schema.dense), len(schema.categorical)) for name, schema in BUILT_IN.items()}
    assert sizes == {"criteo": (13, 26), "avazu": (0, 23), "kdd12": (3, 10), "kdd12_clicks": (3, 8)}


def test_kdd_cup_counts_clicks(tmp_path: Path) -> None:
    lines = [f"{row % 4}\t{row}\t{10**19 + row}\t2\t3\t1\t1\t4\t5\t6\t7\t{row}\t1\t3" for row in range(12)]
    table = encode(write(tmp_path / "training.txt", lines, header=None), "kdd12", tmp_path / "t")
    assert table.column("label").tolist() == [int(row % 4 > 0) for row in range(12)]
    assert table.column("dense")[5].tolist() == pytest.approx([math.log(6), math.log(2), math.log(2)])
    assert table.rows[-2:] == (4, 8)


@pytest.mark.parametrize(("name", "rows", "clicks"), [("criteo", 8184, 0.217), ("avazu", 8999, 0.174)])
def test_samples_of_real_tables(name: str, rows: int, clicks: float, tmp_path: Path) -> None:
    table = encode(sample(name), name, tmp_path / "t")
    assert table.count == rows
    assert table.clicks("train", "val", "test") / rows == pytest.approx(clicks, abs=5e-4)
    assert [table.size(part) for part in ("train", "val", "test")] == pytest.approx(
        [0.8 * rows, 0.1 * rows, 0.1 * rows], abs=2
    )
    assert (table.column("ids").max(0) < np.array(table.rows)).all()
    if name == "criteo":
        with gzip.open(sample(name), "rt") as file:
            names, first = next(file).split(","), next(file).split(",")
        row = dict(zip(names, first, strict=True))
        wanted = [
            1 + int(row[f"C{c + 1}"] or "-1", 16) % (size - 1) if row[f"C{c + 1}"] else 0
            for c, size in enumerate(table.rows)
        ]
        assert table.column("ids")[0].tolist() == wanted
    else:
        assert not table.column("dense").any()


def test_the_split_column_of_a_sample(tmp_path: Path) -> None:
    table = encode(sample("criteo"), replace(load_schema("criteo"), split="split"), tmp_path / "t")
    assert [table.size(part) for part in ("train", "val", "test", "other")] == [7200, 409, 391, 184]


def test_synthetic_rows_follow_their_law(tmp_path: Path) -> None:
    planted = Planted(sizes=(7, 5, 4), num_dense=2, pairs=((0, 1),), gates=((1, 2),), seed=3)
    rows, effects = planted.chunk(0, 300), planted.effects
    for row in range(300):
        x = [0.0 if k < 0 else math.log(1 + k) - 1 for k in rows.counts[row].tolist()]
        c = rows.values[row].tolist()
        logit = planted.bias + sum(a * b for a, b in zip(effects["a"], x, strict=True))
        logit += sum(effects[f"w{f}"][v] for f, v in enumerate(c) if v >= 0)
        if c[0] >= 0 and c[1] >= 0:
            logit += sum(p * q for p, q in zip(effects["p0"][c[0]], effects["q0"][c[1]], strict=True))
        if c[2] >= 0:
            logit += x[1] * effects["s0"][c[2]]
        assert rows.logit[row] == pytest.approx(logit)
    many = planted.chunk(1)
    chance = 1 / (1 + np.exp(-many.logit))
    assert many.label.mean() == pytest.approx(chance.mean(), abs=4 * 0.5 / CHUNK**0.5)
    assert synthetic(tmp_path / "t", 5000, planted).about["floor"] > 0.2


def test_synthetic_text_reads_back_as_the_same_table(tmp_path: Path) -> None:
    planted = Planted(seed=1)
    write_text(tmp_path / "t.tsv", 3000, planted)
    read = encode(tmp_path / "t.tsv", planted.schema, tmp_path / "read")
    assert everything(read) == everything(synthetic(tmp_path / "made", 3000, planted))


def test_open_refuses_what_is_no_table(small: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no table in numbers"):
        open_table(tmp_path)
    table = encode(small, SMALL, tmp_path / "t")
    (table.folder / "ids").write_bytes(b"123")
    with pytest.raises(DataError, match=r"file ids of the table .* is damaged"):
        open_table(table.folder)
    assert encode(small, SMALL, table.folder).column("ids").shape == (20, 3)
    with pytest.raises(UserError, match="No part of a table is called 'trian'"):
        table.size("trian")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="batch size is 0"):
        next(table.batches("train", size=0))
