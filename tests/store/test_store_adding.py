"""Scores that a store takes from the files of another: all of a file or nothing, and what is no such file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from epochzero.errors import DataError, UserError
from epochzero.store import ScoreRow, Store, add, export
from epochzero.types import Setting
from tests.command import epochzero, refusal
from tests.store.test_store_export import ROWS

HEADER = ",".join(ScoreRow._fields)
GOOD = "nb201,a,dextr,noise:0,default:0,1.5,ok,,"


def exported(path: Path) -> Path:
    """The rows of another store, as one file."""
    with Store.open(":memory:") as store:
        assert store.add_scores(ROWS) == len(ROWS)
        export(store, path)
    return path


@pytest.mark.parametrize("name", ["scores.csv", "scores.csv.gz", "scores.parquet"])
def test_what_is_exported_comes_back_exactly(tmp_path: Path, name: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = exported(tmp_path / name)
    with Store.open(tmp_path / "run.db") as store:
        assert add(store, path) == len(ROWS)
        assert list(store.all_scores()) == ROWS
        assert add(store, path) == 0, "what is stored stays as it is"
        assert store.archs(Setting("nb201", "noise:0", "default:0")) == ["a", "b", "网络"]
        assert store.archs(Setting("nb201", "noise:0", "default:2")) == []
        found = store.scores(Setting("nb201", "noise:0", "default:0"), "dextr", ["a", "网络"])
        assert found["a"].why == 'flat, "very"\nflat' and found["网络"].ok


def test_a_folder_gives_all_its_files_of_scores(tmp_path: Path) -> None:
    folder = tmp_path / "scores"
    folder.mkdir()
    (folder / "accuracies.csv").write_text("arch,cifar10_test\na,90\n")
    (folder / "README.md").write_text("about")
    with Store.open(":memory:") as store:
        with pytest.raises(UserError, match="has no file of scores, with columns space, arch"):
            add(store, folder)
        exported(folder / "one.csv.gz")
        (folder / "two.csv").write_text(f"{HEADER}\n{GOOD.replace('nb201,a', 'nb201,other')}\n")
        assert add(store, folder) == len(ROWS) + 1


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("nb201,b,dextr,noise:0,default:0,high,ok,,", "Row 2 of .* is not a score .*'high'"),
        ("nb201,b,dextr,noise:0,default:0,nan,ok,,", "ok, but not a number"),
        ("nb201,b,dextr,noise:0,default:0,1.0,fine,,", "status 'fine'"),
        ("nb201,,dextr,noise:0,default:0,1.0,ok,,", "no arch"),
        ("nb201,b", "no proxy"),
        ("nb201,b,dextr,noise:0,default:0,1.0,ok,,soon", "'soon'"),
    ],
)
def test_one_bad_row_leaves_the_whole_file_out(tmp_path: Path, second: str, says: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(f"{HEADER}\n{GOOD}\n{second}\n")
    with Store.open(":memory:") as store:
        with pytest.raises(DataError, match=says):
            add(store, path)
        assert list(store.all_scores()) == []


def test_files_that_hold_no_scores(tmp_path: Path) -> None:
    rows = [GOOD.replace(",a,", f",network {number},") for number in range(5000)]
    whole = gzip.compress("\n".join([HEADER, *rows]).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "not.csv.gz").write_text(HEADER)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "other.csv").write_text("arch,proxy,value\n")
    (tmp_path / "broken.parquet").write_text("no")
    run = tmp_path / "run.db"
    for name, says in (
        ("cut.csv.gz", "is not a complete file of scores"),
        ("not.csv.gz", "is not a complete file of scores"),
        ("binary.csv", "is not a complete file of scores"),
        ("other.csv", "has no column space, batch, origin, status, why, seconds"),
        ("broken.parquet", "is not a complete file of scores"),
        ("scores.pkl", "There is no file or folder"),
    ):
        assert says in refusal("store", run, "--add", tmp_path / name), name
    (tmp_path / "scores.pkl").write_bytes(b"")
    assert "its name should end in .csv, .csv.gz, .parquet" in refusal("store", run, "--add", tmp_path / "scores.pkl")
    with Store.open(run) as store:
        assert list(store.all_scores()) == []


def test_the_command_adds_and_exports(tmp_path: Path) -> None:
    path = exported(tmp_path / "scores.csv")
    ran = epochzero("store", tmp_path / "run.db", "--add", path, "--to", tmp_path / "again.csv")
    assert f"added   {len(ROWS)} new scores of {path}" in ran.err.replace("\n", "")
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()
