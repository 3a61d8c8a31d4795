"""Saves what can be read of a damaged store into a new one.

SQLite reads a table in the order of its key, forwards or backwards, up to a damaged page. So scores are read by setting
and proxy, and steps by run, each from both ends; what lies between two damaged pages is then looked up one by one:
steps by their number, and scores by the architectures of the steps. A row is saved if a store could have written it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from epochzero.errors import StoreError, UserError
from epochzero.files import work_folder
from epochzero.store.database import STATES, Database
from epochzero.store.sqlite import run_id

Row = tuple[Any, ...]
TYPES: dict[str, tuple[Any, ...]] = {
    "settings": (int, str, str, str),
    "proxies": (int, str),
    "runs": (int, str, str, str, str, str, (str, type(None))),
    "scores": (int, int, str, (float, type(None)), str, str, float),
    "history": (int, int, int, int, str),
    "states": (int, str),
}


class Salvaged(NamedTuple):
    """The numbers of rows that were saved, and the tables in which damage was met."""

    runs: int
    scores: int
    steps: int
    damaged: list[str]


def salvage(path: str | Path, into: str | Path) -> Salvaged:
    """Saves what can be read of the store at `path` into a new store; the damaged file stays as it is."""
    path, into = Path(path), Path(into)
    if not path.is_file():
        raise UserError(f"There is no store '{path}'.")
    if into.exists() or not into.parent.is_dir():
        why = "exists already" if into.exists() else "has no folder"
        raise UserError(f"'{into}' {why}: name a new file for what can be read of '{path}'.")
    with work_folder(into.parent) as place:
        for end in ("", "-wal"):  # a copy, since opening a store may write to it
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", place / f"old.db{end}")
        with closing(Database.open(place / "new.db")) as new, closing(_Damaged(place / "old.db")) as old:
            with new.writing() as db:
                _save(old, db)
            with new.reading() as db:
                runs, scores, steps = (_count(db, table) for table in ("runs", "scores", "history"))
        if not runs + scores:
            raise StoreError(f"Nothing can be read of '{path}': restore a copy of it, or start with a new file.")
        (place / "new.db").replace(into)
    return Salvaged(runs, scores, steps, sorted(old.damaged))


def _save(old: _Damaged, db: sqlite3.Connection) -> None:
    for table in ("settings", "proxies", "runs"):
        for row in old.rows(table, "1"):
            _insert(db, table, row)
    for pair in db.execute("SELECT settings.id, proxies.id FROM settings, proxies").fetchall():
        for row in old.rows("scores", "setting = ? AND proxy = ?", *pair):
            _insert(db, "scores", row)
    for (run,) in db.execute("SELECT number FROM runs").fetchall():
        for row in old.steps(run):
            if "scores" in old.damaged:
                for score in old.rows("scores", "setting = ? AND proxy = ? AND arch = ?", *row[2:]):
                    _insert(db, "scores", score)
            _insert(db, "history", row)
    db.execute(STATES)
    for row in old.rows("states", "1"):
        _insert(db, "states", row)


class _Damaged:
    """A store of which some pages cannot be read."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.text_factory = bytes
        self.damaged: set[str] = set()
        """tables in which something could not be read"""

    def rows(self, table: str, where: str, *values: object) -> Iterator[Row]:
        """The rows that can be read, from both ends; those at the same place may come twice."""
        for order in ("", "DESC"):
            by = ", ".join(f"{column} {order}" for column in _KEYS[table])
            rows = self._connection.cursor()
            try:
                for row in rows.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY {by}", values):
                    if (good := _checked(table, row)) is not None:
                        yield good
                    else:
                        self.damaged.add(table)
            except sqlite3.Error as error:
                if "no such table: states" not in str(error):  # it is made when it is needed
                    self.damaged.add(table)
            else:
                return

    def steps(self, run: int) -> Iterator[Row]:
        """The steps of a run: from both ends, and those between."""
        known = set()
        for row in self.rows("history", "run = ?", run):
            known.add(row[1])
            yield row
        if "history" in self.damaged and known:
            for step in sorted(set(range(max(known))) - known):
                yield from self.rows("history", "run = ? AND step = ?", run, step)

    def close(self) -> None:
        self._connection.close()


_KEYS = {
    "settings": ("id",),
    "proxies": ("id",),
    "runs": ("number",),
    "scores": ("setting", "proxy", "arch"),
    "history": ("run", "step", "setting", "proxy"),
    "states": ("run",),
}


def _checked(table: str, row: Row) -> Row | None:
    """The row as text and numbers, or None if no store would have written it."""
    try:
        values = [cell.decode() if isinstance(cell, bytes) else cell for cell in row]
        if len(values) != len(TYPES[table]) or not all(map(isinstance, values, TYPES[table])):
            return None
        if table == "states" and not isinstance(json.loads(values[1]), dict):
            return None
        if table == "runs":
            _, name, kind, settings, *_ = values
            if run_id(kind, json.loads(settings)) != name:
                return None
            values[4] = _json_or(values[4], dict, "{}")
            values[5] = _json_or(values[5], list, "[]")
            values[6] = _json_or(values[6], dict, None)
    except (ValueError, TypeError, RecursionError):
        return None
    return tuple(values)


def _json_or(text: str | None, kind: type, default: str | None) -> str | None:
    try:
        return text if text is not None and isinstance(json.loads(text), kind) else default
    except (ValueError, RecursionError):
        return default


def _insert(db: sqlite3.Connection, table: str, row: Row) -> None:
    with suppress(sqlite3.IntegrityError):  # a score without its setting, a step without its score
        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(row))})", row)


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
