"""Files that the command line cannot use: data, modules, tables, stores, folders, disks. Nothing is lost or opened."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epochzero as ez
from epochzero import data
from epochzero.store import Store, database
from tests.command import CHEAP, epochzero, process, refusal
from tests.data.data_files import Trap
from tests.store.test_store_file import make_sqlite, make_version, nobody

SCORE = ("score", "--arch", CHEAP, "--batch-size", 2)
SEARCH = ("search", "--proxy", "params", "--budget", 3, "--batch-size", 2)


# Data


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_data_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = np.zeros((6, 8, 8, 3), np.uint8)
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "trap.npz").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "broken.npz").write_bytes(npz(tmp_path / "whole.npz", x=images).read_bytes()[:700])
    (tmp_path / "text.npz").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    expected = {
        "missing.npz": "There is no file or folder missing.npz",
        "trap.pkl": "is a pickle, which can run code when it is opened; save it as .npz",
        "trap.npz": "is a pickle, which can run code when it is opened; save it as .npz",
        "broken.npz": "broken.npz cannot be read as an .npz file",
        "text.npz": "text.npz is not an .npz file",
        "notes.txt": "notes.txt has an unknown format",
        npz(tmp_path / "objects.npz", x=np.array([Trap()], object)).name: "Object arrays cannot be loaded",
        npz(tmp_path / "flat.npz", x=np.zeros((6, 3))).name: "has the shape [6, 3]: images have to be",
        npz(tmp_path / "named.npz", pictures=images).name: "has no array x_train or x (only: pictures)",
        npz(tmp_path / "odd.npz", x=images, y=np.zeros(5, int)).name: "labels have to be [6]",
        npz(tmp_path / "holes.npz", x=np.full((6, 8, 8, 3), np.nan)).name: "NaN or infinite",
        npz(tmp_path / "narrow.npz", x=np.zeros((6, 10, 10, 3), np.uint8)).name: "multiples of 4",
    }
    for name, says in expected.items():
        assert says in refusal(*SCORE, "--data", name), name
        assert says in refusal(*SEARCH, "--data", name), name
    assert "6 samples, fewer than one batch of 7: use --batch-size 6 or less" in refusal(
        *SCORE, "--data", "whole.npz", "--batch-size", 7
    )
    assert "holds samples of shape 3x8x8, but 3x16x16 was asked for" in refusal(
        *SCORE, "--data", "whole.npz", "--input-shape", "3,16,16"
    )
    npz(tmp_path / "labelled.npz", x=images, y=np.arange(6))
    assert "ask for at least 6 classes" in refusal(*SCORE, "--data", "labelled.npz", "--classes", 3)
    assert not (tmp_path / "sprung").exists(), "a pickle was opened"


def test_a_search_by_labels_where_there_are_none(tmp_path: Path) -> None:
    images = npz(tmp_path / "plain.npz", x=np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), np.uint8))
    ran = epochzero(*SEARCH, "--proxy", "snip", "--data", images)
    assert (ran.code, ran.out) == (1, "")
    assert "None of the 3 networks has a snip score; most often: needs labels" in ran.err


# Modules


SOURCE = """
import sys
from torch import nn
def make(): return nn.Linear(3, 3)
def raises(): raise RuntimeError("no [/red] today\\nnor tomorrow")
def leaves(): sys.exit(3)
def wants(size): return nn.Linear(size, 3)
def gives(): return [nn.Linear(3, 3)]
three = 3
class Pair(nn.Module):
    def forward(self, x): return x, 3
class Logits(nn.Module):
    def forward(self, x): return x.flatten(1)
class Lazy(nn.Sequential):
    def __init__(self): super().__init__(nn.Flatten(), nn.LazyLinear(10))
"""


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nets.py", "--module takes file.py:factory, not 'nets.py'"),
        (":make", "--module takes file.py:factory, not ':make'"),
        ("nets.py:", "--module takes file.py:factory, not 'nets.py:'"),
        ("nets.py:make()", "--module takes file.py:factory, not 'nets.py:make()'"),
        ("missing.py:make", "There is no file 'missing.py'"),
        ("[bold].py:make", "There is no file '[bold].py'"),
        ("text.txt:make", "'text.txt' is no Python file"),
        ("wrong.py:make", "'wrong.py' raised SyntaxError: "),
        ("bytes.py:make", "'bytes.py' raised SyntaxError: "),
        ("imports.py:make", "'imports.py' raised ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("nets.py:mkae", "'nets.py' has no 'mkae'. Did you mean 'make'? It has "),
        ("nets.py:raises", "'nets.py:raises' raised RuntimeError: no [/red] today"),
        ("nets.py:leaves", "'nets.py:leaves' raised SystemExit: 3"),
        ("nets.py:wants", "'nets.py:wants' raised TypeError: wants() missing 1 required"),
        ("nets.py:gives", "'nets.py:gives' gives list, not an nn.Module"),
        ("nets.py:three", "'nets.py:three' gives int, not an nn.Module"),
        ("nets.py:Lazy", "'1.weight' has no shape yet: run the module once"),
    ],
)
def test_a_module_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(SOURCE)
    (tmp_path / "text.txt").write_text("make = 3")
    (tmp_path / "wrong.py").write_text("def make(:\n")
    (tmp_path / "bytes.py").write_bytes(bytes(range(256)))
    (tmp_path / "imports.py").write_text("import nowhere_to_be_found")
    assert says in refusal("score", "--module", reference, "--batch-size", 2)


@pytest.mark.parametrize(
    ("name", "part", "says"),
    [
        ("Pair", "5", "The module's output (tuple) has no part '5'"),
        ("Pair", "--1", "The module's output (tuple) has no part '--1'"),
        ("Pair", "logits", "The module's output (tuple) has no part 'logits'"),
        ("Pair", "1", "Part '1' of the module's output is int, not a tensor"),
        ("Logits", "0", "The module's output is a tensor, which has no parts: leave --output out"),
    ],
)
def test_a_part_of_the_output_that_is_not_there(tmp_path: Path, name: str, part: str, says: str) -> None:
    (tmp_path / "nets.py").write_text(SOURCE)
    module = f"{tmp_path / 'nets.py'}:{name}"
    assert says in refusal("score", "--module", module, "--batch-size", 2, "--proxy", "jacov", f"--output={part}")


# Tables


def test_tables_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "good.csv": f"arch_str,accuracy,note\n{CHEAP},1,x\n",
        "other.csv": "arch_str,accuracy\nresnet,1\n",
        "nameless.csv": "network,accuracy\n1,2\n",
        "empty.csv": "",
        "ragged.csv": f"arch_str,accuracy\n{CHEAP}\n",
        "wrong.csv.gz": "no gzip",
        "wrong.parquet": "no parquet",
        "table.txt": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    def bench(table: str, target: str = "accuracy", *more: object) -> str:
        return refusal("bench", "--table", table, "--target", target, "--proxy", "params", "--batch-size", 2, *more)

    assert "good.csv has no column 'acuracy'. Did you mean 'accuracy'?" in bench("good.csv", "acuracy")
    assert "Column 'note' of good.csv holds 'x' in row 1" in bench("good.csv", "note")
    assert "No target column is named; the table has accuracy, note." in bench("good.csv", " , ")
    assert "has 1 to 1 architectures, not 7" in bench("good.csv", "accuracy", "--sample", 7)
    assert "--unscored takes drop or worst, not 'best'" in bench("good.csv", "accuracy", "--unscored", "best")
    assert "Row 1 of other.csv does not fit: An nb201 string is 3 nodes joined by '+', not 1" in bench("other.csv")
    assert "no column 'arch_str' or 'arch'" in bench("nameless.csv")
    assert "empty.csv is empty" in bench("empty.csv")
    assert "Row 1 of ragged.csv has 1 cells where the header has 2" in bench("ragged.csv")
    assert "wrong.csv.gz is not a CSV table" in bench("wrong.csv.gz")
    assert "wrong.parquet is not a Parquet table" in bench("wrong.parquet")
    assert "table.txt is not a readable table" in bench("table.txt")
    assert "There is no file missing.csv" in bench("missing.csv")


# Stores, folders and disks


def test_stores_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello")
    make_sqlite(tmp_path / "other.db", "CREATE TABLE scores (mine)")
    make_version(2)(tmp_path / "newer.db")
    make_version(0)(tmp_path / "older.db")
    expected = {
        "text.db": "is not an SQLite file",
        "other.db": "an SQLite database of another program",
        "newer.db": "was written by a newer EpochZero (its format is 2, this one's is 1)",
        "older.db": "was written by an older EpochZero",
        "": "is a folder: name a file",
        "no/run.db": "has no folder",
        f"{'x' * 300}.db": "File name too long",
    }
    for name, says in expected.items():
        before = (tmp_path / name).read_bytes() if name.count(".db") and len(name) < 99 and "/" not in name else b""
        assert says in refusal(*SEARCH, "--store", tmp_path / name), name
        assert not before or (tmp_path / name).read_bytes() == before, "the file was changed"
    for name in ("text.db", "other.db", "newer.db"):
        assert expected[name] in refusal("store", tmp_path / name)
    assert "There is no store" in refusal("store", tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


def test_exports_that_cannot_be_written(tmp_path: Path) -> None:
    run = tmp_path / "run.db"
    Store.open(run).close()
    assert "let its name end in .csv, .csv.gz, .parquet" in refusal("store", run, "--to", tmp_path / "scores.json")
    assert "cannot be written (No such file or directory)" in refusal("store", run, "--to", tmp_path / "no/scores.csv")


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    assert epochzero(*SCORE).code == 0, "everything is loaded before rights are given up"
    (tmp_path / "file").write_text("")
    assert "(File exists): choose another --out" in refusal(*SEARCH, "--out", tmp_path / "file")
    assert "(Not a directory): choose another --out" in refusal(*SEARCH, "--out", tmp_path / "file/winner")
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which is root's alone
        folder = Path(name)
        folder.chmod(0o555)
        with nobody():
            assert "(Permission denied): choose another --out" in refusal(*SEARCH, "--out", folder)
            assert "(Permission denied): choose another --out" in refusal(*SEARCH, "--out", folder / "winner")
            assert "check that you may write to it and to its folder" in refusal(*SEARCH, "--store", folder / "run.db")
        folder.chmod(0o755)
        assert list(folder.iterdir()) == []


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = database.Database.open

    def cramped(path: str | Path) -> database.Database:
        found = opened(path)
        with found.reading() as connection:
            connection.execute("PRAGMA max_page_count = 1")  # SQLite: the size that it has now
        return found

    monkeypatch.setattr(database.Database, "open", cramped)
    ran = epochzero("search", "--proxy", "l2_norm", "--budget", 120, "--batch-size", 2, "--store", tmp_path / "run.db")
    assert (ran.code, ran.out) == (1, "")
    last = ran.err.strip().splitlines()[-1]
    assert last.startswith("error: The disk is full: the last batch did not go into the store")
    assert last.endswith("Make room, then repeat the command to resume.")
    monkeypatch.undo()
    with Store.open(tmp_path / "run.db") as store:
        kept = len(list(store.all_scores()))
        assert 0 < kept < 120 and kept % 8 == 0
    resumed, calm = (
        ez.search(proxy="l2_norm", budget=120, data=data.pink(size=2), store=path)
        for path in (tmp_path / "run.db", ":memory:")
    )
    assert resumed.best == calm.best
    with Store.open(tmp_path / "run.db") as store:
        assert [run.state for run in store.runs()] == ["finished"], "another run was begun"


def test_a_store_that_is_damaged(tmp_path: Path) -> None:
    ez.search(proxy="params", budget=200, data=data.pink(size=2), store=tmp_path / "run.db")
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (tmp_path / "run.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 60_000)
    assert "is damaged: restore a copy" in refusal("store", tmp_path / "run.db", "--to", tmp_path / "scores.csv")


def test_too_little_memory(tmp_path: Path) -> None:
    """Half a million terabytes are asked for, which no machine gives."""
    (tmp_path / "nets.py").write_text(SOURCE)
    huge = ("--input-shape", "100000,100000,100000", "--proxy", "naswot")
    assert "Out of memory on one network" in refusal(*SCORE, *huge, code=1)
    module = f"{tmp_path / 'nets.py'}:make"
    assert "not enough memory" in refusal("score", "--module", module, *huge, code=1)


def test_a_full_disk_under_standard_output() -> None:
    """`epochzero ... > file`, and the file does not fit."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            process("list", "proxies"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "error: No space left on device: 'standard output'.\n")
