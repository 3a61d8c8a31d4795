"""The remains of a store: salvage, the check after a kill, copies while it is written, permissions."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from epochzero.errors import StoreError
from epochzero.files import write
from epochzero.store import Evaluated, ScoreRow, Store, export, salvage
from epochzero.types import Score
from tests.command import epochzero, refusal
from tests.store.test_store import SETTING, batch, begin, connection

STEPS = 400


def made(path: Path) -> tuple[dict[str, ScoreRow], dict[tuple[str, int], str]]:
    """A store of two runs; its scores by architecture and proxy, and its steps."""
    with Store.open(path) as store:
        for seed in range(2):
            run = begin(store, seed=seed)
            archs = [f"{seed}-{i:04d}-{'x' * 40}" for i in range(STEPS)]
            scores = {"dextr": (Score(1 / 3), 0.5), "zico": (Score(float("nan"), "failed", "why"), 0.25)}
            run.record(SETTING, [Evaluated(i, arch, scores) for i, arch in enumerate(archs)])
        run.save({"generation": 7})
        run.finish({"best": archs[0]})
        return content(store)


def content(store: Store) -> tuple[dict[str, ScoreRow], dict[tuple[str, int], str]]:
    scores = {f"{row.arch} {row.proxy}": row for row in store.all_scores()}
    steps = {(run.id, one.step): one.arch for run in store.runs() for one in run.history().get(SETTING, [])}
    return scores, steps


def test_a_whole_store_is_salvaged_whole(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.db", tmp_path / "saved.db"
    before, steps = made(path)
    assert salvage(path, saved) == (2, 4 * STEPS, 4 * STEPS, [])
    with Store.open(saved) as store:
        assert content(store) == (before, steps)
        one, two = store.runs()
        assert one.state == "unfinished" and two.state == "finished" and two.saved() == {"generation": 7}
    assert {file.name for file in tmp_path.iterdir()} == {"run.db", "saved.db"}


def page_with(path: Path, text: bytes, nth: int) -> int:
    """The number of the n-th page that holds this text."""
    content = path.read_bytes()
    return [at for at in range(0, len(content), 4096) if text in content[at : at + 4096]][nth] // 4096


@pytest.mark.parametrize("seed", range(6))
def test_pages_that_are_whole_are_saved(tmp_path: Path, seed: int) -> None:
    path, saved, rng = tmp_path / "run.db", tmp_path / "saved.db", Random(seed)
    before, steps = made(path)
    with path.open("r+b") as file:
        for nth in rng.sample(range(2, 20), 2):  # leaves of scores and of history
            file.seek(4096 * page_with(path, b"x" * 40, nth))
            file.write(rng.randbytes(4096))
    with pytest.raises(StoreError, match="--salvage"), Store.open(path) as store:
        content(store)
    found = salvage(path, saved)
    with Store.open(saved) as store:
        after, steps_after = content(store)
    assert found.damaged and set(found.damaged) <= {"scores", "history"}
    assert after.items() <= before.items() and steps_after.items() <= steps.items()
    assert len(after) > 0.8 * len(before)  # two of some forty leaves, and the ranges that end at them


def test_rows_that_no_store_writes_are_left_out(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.db", tmp_path / "saved.db"
    made(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE runs SET settings = '{\"seed\": 9}' WHERE number = 1")  # no longer what its id says
        db.execute("UPDATE runs SET manifest = '{', result = '[]' WHERE number = 2")
        db.execute("UPDATE scores SET why = CAST(x'ff' AS TEXT) WHERE proxy = 2 AND arch LIKE '1-0000%'")
    assert salvage(path, saved) == (1, 4 * STEPS - 1, 2 * STEPS - 1, ["runs", "scores"])
    with Store.open(saved) as store:
        (run,) = store.runs()
        assert run.state == "unfinished" and run.manifest == {} and run.settings == {"seed": 1}


def test_salvage_refuses_in_a_sentence(tmp_path: Path) -> None:
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    other.touch()
    assert "exists already" in refusal("store", path, "--salvage", other)
    assert "There is no store" in refusal("store", tmp_path / "no.db", "--salvage", tmp_path / "new.db")
    assert "Nothing can be read of" in refusal("store", path, "--salvage", tmp_path / "new.db")
    assert {file.name for file in tmp_path.iterdir()} == {"run.db", "other.db"}


def test_the_command_salvages_and_shows_the_runs(tmp_path: Path) -> None:
    made(tmp_path / "run.db")
    ran = epochzero("store", tmp_path / "run.db", "--salvage", tmp_path / "saved.db")
    assert ran.code == 0 and "saved   1,600 scores, 1,600 steps of 2 runs; no damage was met" in ran.err
    assert ran.out.count("unfinished") == 1


# A store whose last user was killed is checked when it is opened


KILLED = """
import os, sys
from epochzero.store import Store, Evaluated
from epochzero.types import Score, Setting
store = Store.open(sys.argv[1])
run = store.begin_run("search", {"seed": 5}, {})
run.record(Setting("nb201", "noise:0", "default:0"), [Evaluated(0, "a", {"dextr": (Score(1.0), 0.5)})])
os._exit(9)
"""


def test_a_store_that_was_not_closed_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    made(path)
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert Path(f"{path}-wal").stat().st_size > 0
    with Store.open(path) as store:
        assert store.scores(SETTING, "dextr", ["a"]) == {"a": Score(1.0)}
    subprocess.run([sys.executable, "-c", KILLED.replace("5}", "6}"), str(path)], check=False)
    at = 4096 * page_with(path, b"x" * 40, 4)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(path)


# A copy of a store that is written meanwhile


def test_a_backup_is_the_store_at_one_moment(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.db", tmp_path / "copy.db"
    with Store.open(path) as writer, Store.open(path) as reader:
        run = begin(writer)
        run.record(SETTING, batch({f"{i}": Score(float(i)) for i in range(50)}))
        with writer._database.writing():  # a batch that is under way
            connection(writer).execute("INSERT INTO proxies (name) VALUES ('half')")
            reader.backup(copy)
        run.record(SETTING, batch({"later": Score(1.0)}, first=50))
    with Store.open(copy) as store:
        assert len(list(store.all_scores())) == 50
        assert connection(store).execute("SELECT name FROM proxies").fetchall() == [("dextr",)]
        assert connection(store).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    ran = epochzero("store", path, "--backup", copy)
    assert ran.code == 0 and str(copy) in ran.err.replace("\n", "")
    assert "which is the store itself" in refusal("store", path, "--backup", path)


# Permissions


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o022, 0o002])
def test_files_have_the_permissions_of_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with Store.open(tmp_path / "run.db") as store:
            begin(store).record(SETTING, batch({"a": Score(1.0)}))
            export(store, tmp_path / "scores.csv")
            store.backup(tmp_path / "copy.db")
            write(tmp_path / "text", "text")
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert {"run.db", "run.db-wal", "scores.csv", "copy.db"} < set(modes)
    assert set(modes.values()) == {0o666 & ~umask}, modes


# Every query of a large store goes by an index


def test_queries_use_indices(tmp_path: Path) -> None:
    """SQLite's own plans: no table is read whole, but those of settings and proxies for all scores."""
    plans: dict[str, list[str]] = {}
    with Store.open(tmp_path / "run.db") as store:
        run = begin(store)
        run.record(SETTING, batch({"a": Score(1.0)}))
        run.save({})
        db = connection(store)
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        store.scores(SETTING, "dextr", ["a", "b"])
        store.archs(SETTING)
        list(store.all_scores())
        store.runs(5)
        run.history(), run.so_far(), run.saved()
        run.record(SETTING, batch({"a": Score(1.0), "c": Score(2.0)}))
        db.set_trace_callback(None)
        for query in {one for one in asked if one.startswith(("SELECT", "INSERT", "UPDATE"))}:
            plans[query] = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert len(plans) > 10
    for query, plan in plans.items():
        scans = [
            step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step and "(subquery" not in step
        ]
        if "all_scores" in query:
            assert [scan.split()[1] for scan in scans] == ["settings", "proxies"], plan
            assert not any("TEMP B-TREE" in step for step in plan), "sorted in memory"
            scans = []
        if "FROM runs ORDER BY number DESC LIMIT" in query:  # the last by its key
            assert plan == ["SCAN runs"]
            scans = []
        assert not [scan for scan in scans if "sqlite_master" not in query], (query, plan)
