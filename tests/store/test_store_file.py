"""The store's file: what it refuses to open and leaves alone, and a full disk."""

from __future__ import annotations

import os
import resource
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from epochzero.errors import MachineError, StoreError, UserError
from epochzero.store import Store, database, export
from epochzero.types import Score
from tests.store.test_store import SETTING, batch, begin, connection


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "run.db") as store:
        yield store


# The file


def test_memory_and_empty_files_become_stores(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for path in (":memory:", tmp_path / "empty.db", str(tmp_path / "with space & ünïcode?.db")):
        with Store.open(path) as store:
            begin(store).record(SETTING, batch({"a": Score(1.0)}))
            assert store.scores(SETTING, "dextr", ["a"]) == {"a": Score(1.0)}
    assert not Path(":memory:").exists()


def test_the_file_is_marked_and_in_wal_mode(store: Store) -> None:
    begin(store)
    header = Path(store.path).read_bytes()[:100]
    assert header[68:72] == b"EpZ0"
    assert connection(store).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def make_sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)


def make_version(version: int) -> Any:
    def make(path: Path) -> None:
        with Store.open(path) as store:
            begin(store).record(SETTING, batch({"a": Score(1.0)}))
        make_sqlite(path, f"PRAGMA user_version = {version}")

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_text("hi"), "is not an SQLite file"),
        (lambda path: path.write_bytes(bytes(range(256)) * 64), "is not an SQLite file"),
        (
            lambda path: make_sqlite(path, "CREATE TABLE scores (mine)"),
            "an SQLite database of another program",
        ),
        (
            lambda path: make_sqlite(path, "PRAGMA application_id = 7"),
            "an SQLite database of another program",
        ),
        (make_version(2), "was written by a newer EpochZero"),
        (make_version(0), "was written by an older EpochZero"),
    ],
)
def test_a_file_that_is_no_store_of_ours_is_named_and_left_alone(tmp_path: Path, make: Any, says: str) -> None:
    path = tmp_path / "run.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=says) as caught:
        Store.open(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "says"),
    [("", "is a folder: name a file"), ("no/run.db", "has no folder: create '.*no' first")],
)
def test_a_path_that_cannot_be_a_store(tmp_path: Path, path: str, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        Store.open(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_device_and_a_file_system_that_takes_no_files() -> None:
    with pytest.raises(StoreError, match="'/dev/null' is not an ordinary file"):
        Store.open("/dev/null")
    if Path("/proc/self").exists():
        with pytest.raises(StoreError, match=r"'/proc/run\.db' cannot be opened: check that you may write"):
            Store.open("/proc/run.db")


def test_a_read_only_file_and_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which is root's alone
        folder = Path(name)
        file, new = folder / "run.db", folder / "new.db"
        Store.open(file).close()
        file.chmod(0o444)
        folder.chmod(0o555)
        with nobody():
            for path in (file, new):
                with pytest.raises(StoreError, match="check that you may write to it and to its folder") as caught:
                    Store.open(path)
                assert str(path) in str(caught.value)
            with (
                Store.open(":memory:") as store,
                pytest.raises(UserError, match=r"cannot be written .*: check its"),
            ):
                export(store, folder / "scores.csv")
        folder.chmod(0o755)
        assert list(folder.iterdir()) == [file]


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write anywhere, read-only or not: do without its rights for a moment."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.open(path) as store:
        begin(store).record(SETTING, batch({f"arch-{i}": Score(1.0) for i in range(1000)}))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (size - 8192))
    with pytest.raises(StoreError, match="is damaged: restore a copy"), Store.open(path) as store:
        list(store.all_scores())


def test_a_store_that_is_busy_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself does not wait when the file is to become a WAL one while another connection writes."""
    path = tmp_path / "run.db"
    Store.open(path).close()
    make_sqlite(path, "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, other.execute, ["ROLLBACK"]).start()
        Store.open(path).close()

        monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="was in use by another process"):
            Store.open(path)


# A full disk


def test_a_disk_that_is_full_loses_only_the_last_batch(store: Store) -> None:
    run = begin(store)
    run.record(SETTING, batch({"a": Score(1.0)}))
    connection(store).execute("PRAGMA max_page_count = 1")  # SQLite: the size that it has now
    big = batch({f"arch-{i}" * 100: Score(1.0) for i in range(200)}, first=1)
    with pytest.raises(MachineError, match=r"The disk is full: .* Make room, then repeat the command") as caught:
        run.record(SETTING, big)
    assert store.path in str(caught.value)
    assert [row.arch for row in store.all_scores()] == ["a"]
    assert len(run.history()[SETTING]) == 1

    connection(store).execute("PRAGMA max_page_count = 1000000")
    run.record(SETTING, big)
    assert len(run.history()[SETTING]) == 201


def test_a_disk_that_refuses_to_write(store: Store) -> None:
    run = begin(store)
    run.record(SETTING, batch({"a": Score(1.0)}))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(MachineError, match=r"The disk failed under the store .* is safe"):
            run.record(SETTING, batch({f"arch-{i}" * 100: Score(1.0) for i in range(1000)}, first=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [row.arch for row in store.all_scores()] == ["a"]


def test_no_room_for_a_new_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user can still choose another place, so this is not (yet) a failure."""
    monkeypatch.setattr(database, "SCHEMA", ("PRAGMA max_page_count = 2", *database.SCHEMA))
    with pytest.raises(StoreError, match="does not fit on the disk: make room, or choose a file on another disk"):
        Store.open(tmp_path / "run.db")
    monkeypatch.undo()
    Store.open(tmp_path / "run.db").close()  # what is left of the attempt is no obstacle
