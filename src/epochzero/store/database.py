"""The SQLite file of a store: creation, identification, transactions and errors."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from epochzero.errors import MachineError, StoreError

T = TypeVar("T")
MEMORY = ":memory:"
APPLICATION_ID = 0x45705A30  # "EpZ0", in the header of every store
VERSION = 1
BUSY_SECONDS = 30
CHECKPOINT_PAGES = 8000  # 32 MB of write-ahead log: a third faster than SQLite's 4 MB

SCHEMA = (
    """CREATE TABLE settings (        -- dependencies of a score other than architecture and proxy
    id INTEGER PRIMARY KEY,
    space TEXT NOT NULL,
    batch TEXT NOT NULL,
    origin TEXT NOT NULL,
    UNIQUE (space, batch, origin)
)""",
    """CREATE TABLE proxies (         -- the proxy's name with its own settings, e.g. dextr(points=4)
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
)""",
    """CREATE TABLE scores (
    setting INTEGER NOT NULL REFERENCES settings,
    proxy INTEGER NOT NULL REFERENCES proxies,
    arch TEXT NOT NULL,
    value,                        -- NULL unless ok; untyped, because a REAL column turns -0.0 into 0.0
    status TEXT NOT NULL CHECK (status IN ('ok', 'degenerate', 'failed')),
    why TEXT NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (setting, proxy, arch),
    CONSTRAINT a_number_if_and_only_if_ok
        CHECK (typeof(value) = CASE status WHEN 'ok' THEN 'real' ELSE 'null' END)
) WITHOUT ROWID""",
    """CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,      -- a hash of kind and settings
    kind TEXT NOT NULL,
    settings TEXT NOT NULL,       -- JSON, as are the columns below
    manifest TEXT NOT NULL,
    resumed TEXT NOT NULL,
    result TEXT                   -- NULL until the run is finished
)""",
    """CREATE TABLE history (         -- the architecture that a run evaluated in each step
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    setting INTEGER NOT NULL,
    proxy INTEGER NOT NULL,
    arch TEXT NOT NULL,
    PRIMARY KEY (run, step, setting, proxy),
    FOREIGN KEY (setting, proxy, arch) REFERENCES scores
) WITHOUT ROWID""",
    """CREATE VIEW all_scores AS
SELECT space, arch, name AS proxy, batch, origin, value, status, why, seconds
FROM settings CROSS JOIN proxies CROSS JOIN scores
ON scores.setting = settings.id AND scores.proxy = proxies.id""",
    """CREATE VIEW all_history AS
SELECT runs.id AS run, step, space, batch, origin, arch, name AS proxy, value, status, why, seconds
FROM history
JOIN runs ON runs.number = history.run
JOIN settings ON settings.id = history.setting
JOIN proxies ON proxies.id = history.proxy
JOIN scores USING (setting, proxy, arch)""",
)

STATES = """CREATE TABLE IF NOT EXISTS states (  -- state of a run that cannot be replayed; created when needed
    run INTEGER PRIMARY KEY REFERENCES runs,
    state TEXT NOT NULL           -- JSON
)"""


class Database:
    """A connection that writes in transactions and reports any failure in one sentence."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: str | Path) -> Database:
        """Opens the store at `path`, or creates one if nothing is there. Leaves any other file unchanged."""
        path = str(path)
        if path == MEMORY:
            connection = sqlite3.connect(path, isolation_level=None)
            _create(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            return cls(path, connection)
        _check_place(Path(path))
        left = _log_left(path)
        with _explained(path, opening=True):
            _touch(Path(path))
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                if _is_blank(connection):
                    with _transaction(connection):
                        if _is_blank(connection):  # no other process was faster
                            _create(connection)
                _check_identity(path, connection)
                _switch_to_wal(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                connection.execute("PRAGMA cache_size = -65536")  # 64 MB
                connection.execute("PRAGMA foreign_keys = ON")
                with _transaction(connection):
                    pass  # a store that cannot be written says so now, not after the first batch
                if left:
                    _check_content(path, connection)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with _explained(self.path):
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: everything or, after an exception or a kill, nothing."""
        with _explained(self.path), _transaction(self._connection):
            yield self._connection

    def copy_to(self, file: Path) -> None:
        """Writes the content at this moment into a new file, while others may write to the store."""
        _touch(file)
        self._connection.execute("VACUUM INTO ?", (str(file),))
        with file.open("rb") as written:
            os.fsync(written.fileno())

    def damaged(self) -> StoreError:
        return StoreError(f"The store '{self.path}' {DAMAGED}.")

    def loaded(self, text: str, kind: type[T]) -> T:
        """Returns the content of JSON that was stored; StoreError if it is of another kind."""
        try:
            content = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.damaged() from error
        if not isinstance(content, kind):
            raise self.damaged()
        return content

    def close(self) -> None:
        self._connection.close()


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"The store '{path}' is a folder: name a file, e.g. '{path / 'run.db'}'.")
    if path.exists() and not path.is_file():
        raise StoreError(f"The store '{path}' is not an ordinary file: choose another path.")
    if not path.parent.is_dir():
        raise StoreError(f"The store '{path}' has no folder: create '{path.parent}' first.")


def _log_left(path: str) -> bool:
    """Returns True if a process has the store open, or had and was killed: a log is left beside the file."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except OSError:
        return False


def _touch(path: Path) -> None:
    """Makes a new file with the permissions that the user's umask gives; SQLite would give others none to write."""
    with suppress(OSError):  # SQLite's own error is told
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o666))


def _is_blank(connection: sqlite3.Connection) -> bool:
    """Returns True for a new file, and for one whose creator was killed before its first transaction."""
    return (
        _pragma(connection, "application_id") == 0
        and _pragma(connection, "user_version") == 0
        and connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    )


def _create(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _check_identity(path: str, connection: sqlite3.Connection) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"'{path}' is an SQLite database of another program: choose another file for the store.")
    version = _pragma(connection, "user_version")
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise StoreError(
            f"The store '{path}' was written by {age} EpochZero (its format is {version}, this one's is "
            f"{VERSION}): open it with that release, or choose another file."
        )


def _check_content(path: str, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise StoreError(f"The store '{path}' {DAMAGED}.")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Allows readers and a writer at the same time. SQLite does not wait for its turn here, so we do."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _explained(path: str, opening: bool = False) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:  # in a message of SQLite's
        raise StoreError(f"The store '{path}' {DAMAGED}.") from error
    except sqlite3.Error as error:
        # The low byte is the kind of error; the rest, where there is any, a detail of it. Texts that are not UTF-8, and
        # tables that were renamed or changed, have no kind of their own.
        kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if kind == sqlite3.SQLITE_ERROR and isinstance(error, sqlite3.OperationalError):
            kind = sqlite3.SQLITE_CORRUPT
        if kind == sqlite3.SQLITE_FULL and not opening:
            raise MachineError(
                f"The disk is full: the last batch did not go into the store '{path}', all others are safe. "
                "Make room, then repeat the command to resume."
            ) from error
        if kind == sqlite3.SQLITE_IOERR:
            raise MachineError(
                f"The disk failed under the store '{path}' ({error}): what was recorded before is safe. "
                "Check the disk and its free space, then repeat the command to resume."
            ) from error
        if kind in _USER_ERRORS:
            raise StoreError(f"The store '{path}' {_USER_ERRORS[kind]}.") from error
        raise


DAMAGED = (
    "is damaged: restore a copy of it, save what can be read by `epochzero store FILE --salvage NEW.db`, or start with "
    "a new file"
)
_USER_ERRORS = {
    sqlite3.SQLITE_FULL: "does not fit on the disk: make room, or choose a file on another disk",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that you may write to it and to its folder",
    sqlite3.SQLITE_PERM: "cannot be opened: check that you may write to it and to its folder",
    sqlite3.SQLITE_READONLY: "is read-only: check that you may write to it and to its folder",
    sqlite3.SQLITE_NOTADB: "is not an SQLite file: choose another file",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_MISMATCH: DAMAGED,
    sqlite3.SQLITE_BUSY: f"was in use by another process for {BUSY_SECONDS} s: wait for it, then try again",
}
