"""Exports of the store, and the manifests of its runs."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import epochzero
from epochzero.errors import MachineError, UserError
from epochzero.store import ScoreRow, Store, export, manifest
from epochzero.types import Score, Setting
from tests.store.test_store import batch, begin


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "run.db") as store:
        yield store


# Export

ROWS = [
    ScoreRow("nb201", "a", "dextr", "noise:0", "default:0", None, "degenerate", 'flat, "very"\nflat', 0.5),
    ScoreRow("nb201", "网络", "dextr", "noise:0", "default:0", -0.0, "ok", "", 0.5),
    ScoreRow("nb201", "a", "zico", "noise:0", "default:0", 1e-320, "ok", "", 0.5),
    ScoreRow("nb201", "b", "zico", "noise:0", "default:0", math.inf, "ok", "", 0.5),
    ScoreRow("nb201", "a", "dextr", "noise:0", "default:1", 0.1, "ok", "", 0.5),
]


@pytest.fixture
def filled(store: Store) -> Store:
    run = begin(store)
    for step in (3, 4, 1, 0, 2):  # the order of the rows does not follow that of recording
        row = ROWS[step]
        score = Score(math.nan if row.value is None else row.value, row.status, row.why)
        setting = Setting(row.space, row.batch, row.origin)
        run.record(setting, batch({row.arch: score}, row.proxy, first=step))
    return store


@pytest.mark.parametrize("name", ["scores.csv", "scores.csv.gz", "SCORES.CSV"])
def test_csv_says_everything_exactly(filled: Store, tmp_path: Path, name: str) -> None:
    export(filled, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["space", "arch", "proxy", "batch", "origin", "value", "status", "why", "seconds"]
    assert rows == [["" if cell is None else str(cell) for cell in row] for row in ROWS]
    assert [row[5] for row in rows] == ["", "-0.0", "1e-320", "inf", "0.1"]
    export(filled, tmp_path / name)
    assert (tmp_path / name).read_bytes() == content


def test_parquet_says_everything_exactly(filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(sys.modules["epochzero.store.export"], "ROW_GROUP", 2)
    export(filled, tmp_path / "scores.parquet")
    table = parquet.read_table(tmp_path / "scores.parquet")
    assert [ScoreRow(**row) for row in table.to_pylist()] == ROWS
    assert math.copysign(1, table["value"][1].as_py()) == -1
    assert parquet.ParquetFile(tmp_path / "scores.parquet").num_row_groups == 3


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_an_empty_store_gives_an_empty_table(store: Store, tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    export(store, tmp_path / f"scores{suffix}")
    assert (tmp_path / f"scores{suffix}").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("scores.xlsx", "let its name end in .csv, .csv.gz, .parquet"),
        ("csv", "has no known format"),
        ("no/scores.csv", r"cannot be written \(No such file or directory\): check its folder"),
        ("run.db/scores.csv", r"cannot be written \(Not a directory\)"),
        ("folder.csv", "which is a folder: choose another file"),
    ],
)
def test_an_export_that_cannot_be(filled: Store, tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match=says) as caught:
        export(filled, tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_an_export_never_replaces_its_store(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "run.csv") as store,
        pytest.raises(UserError, match="which is the store itself"),
    ):
        export(store, tmp_path / "." / "run.csv")
    Store.open(tmp_path / "run.csv").close()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_an_export_that_breaks_off_leaves_the_old_file(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"scores{suffix}"
    path.write_text("old")

    def rows_until_the_disk_is_full(self: Store) -> Iterator[ScoreRow]:
        yield ROWS[0]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "all_scores", rows_until_the_disk_is_full)
    with pytest.raises(MachineError, match=r"was not written \(No space left on device\): make room"):
        export(filled, path)
    assert path.read_text() == "old"
    assert not list(tmp_path.glob(".*"))


def test_parquet_needs_its_extra_and_says_so(filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs pyarrow: pip install 'epochzero\[parquet\]'"):
        export(filled, tmp_path / "scores.parquet")
    assert not list(tmp_path.glob("*scores*"))


# Manifest


def test_a_manifest_says_what_a_run_was_made_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/epochzero", "search", "--budget", "5"])
    made = manifest({"space": "nb201", "budget": 5})
    assert made["settings"] == {"space": "nb201", "budget": 5}
    assert made["argv"] == ["epochzero", "search", "--budget", "5"]
    versions, machine = cast(dict[str, Any], made["versions"]), cast(dict[str, Any], made["machine"])
    assert versions["numpy"] == np.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["torch"]
    assert machine["cpu_count"] == os.cpu_count() and machine["memory_bytes"] > 2**28
    assert abs(datetime.fromisoformat(cast(str, made["started"])).timestamp() - time.time()) < 60
    assert store.begin_run("search", {}, made).manifest == made


def test_a_manifest_names_no_person_and_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(
        sys, "argv", ["/home/ada/bin/ez", "--data=/home/ada/x,/home/ada", "/home/adam/x", "/mnt/home/ada"]
    )
    made = manifest({"data": {"files": ["/home/ada/a.npz", "file:///home/ada/b"]}})
    assert made["argv"] == ["ez", "--data=~/x,~", "/home/adam/x", "/mnt/home/ada"]
    assert made["settings"] == {"data": {"files": ["~/a.npz", "file://~/b"]}}
    assert platform.node() not in json.dumps(made) or len(platform.node()) < 4

    monkeypatch.setenv("HOME", "/")
    assert manifest({"data": "/a/b"})["settings"] == {"data": "/a/b"}


def test_a_manifest_knows_the_commit_of_its_own_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setattr(sys.modules["epochzero.store.manifest"], "PACKAGE", tmp_path)
    assert manifest({})["git"] is None

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (tmp_path / "errors.py").write_text("")
    assert manifest({})["git"] is None  # in a checkout, but no part of it
    git("add", "errors.py")
    assert manifest({})["git"] is None  # no commit yet
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert manifest({})["git"] == {"commit": commit, "dirty": False}
    (tmp_path / "proxy.py").write_text("")
    assert manifest({})["git"] == {"commit": commit, "dirty": True}
    monkeypatch.setenv("PATH", "")
    assert manifest({})["git"] is None


def test_the_store_does_without_torch_and_pyarrow() -> None:
    code = "import sys, epochzero.store; print({'torch', 'pyarrow'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(Path(epochzero.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
