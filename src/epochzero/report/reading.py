"""Read-only access to a store for reports, consistent while others write to it.

SQLite's readers see the last whole transaction, so that a run that is under way, or was killed in the middle of a
batch, reads as it was after its last batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from epochzero.errors import StoreError, UserError
from epochzero.store import Run, Store
from epochzero.store.database import APPLICATION_ID, BUSY_SECONDS, VERSION, Database
from epochzero.types import Status

ASIDE = ("winner", "latency", "pool", "training", "warm-up")
"""kinds of run that belong to another one, and are the subject of a report only if there is no other run"""


class Row(NamedTuple):
    """A score of a run."""

    step: int
    space: str
    setting: int
    """number of the combination of space, batch and weights"""
    batch: str
    origin: str
    arch: str
    proxy: str
    value: float | None
    status: Status
    why: str
    seconds: float


class Reader:
    """The runs of a store and their scores at one moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.runs = Store(database).runs()

    def chosen(self, wanted: str | None = None) -> Run:
        """The run whose id begins with `wanted`; by default the latest that does not belong to another one."""
        path = self._database.path
        if not self.runs:
            raise StoreError(f"The store '{path}' holds no run yet: start one with --store {path}, then report on it.")
        if wanted is None:
            return next((run for run in reversed(self.runs) if run.kind not in ASIDE), self.runs[-1])
        matching = [run for run in self.runs if run.id.startswith(wanted)]
        if len(matching) != 1:
            ids = ", ".join(f"{run.id} ({run.kind})" for run in matching or self.runs)
            raise UserError(f"{len(matching) or 'No'} runs of '{path}' begin with '{wanted}': choose one of {ids}.")
        return matching[0]

    def related(self, run: Run, *kinds: str) -> list[Run]:
        """Other runs of these kinds in the store."""
        return [other for other in self.runs if other.kind in kinds and other.id != run.id]

    def rows(self, run: Run) -> Iterator[Row]:
        """All scores of a run, in the order of its steps."""
        with self._database.reading() as db:
            yield from map(
                Row._make,
                db.execute(
                    "SELECT step, space, setting, batch, origin, arch, name, value, status, why, seconds FROM history "
                    "JOIN scores USING (setting, proxy, arch) JOIN settings ON settings.id = history.setting "
                    "JOIN proxies ON proxies.id = history.proxy "
                    "WHERE history.run = (SELECT number FROM runs WHERE id = ?) ORDER BY step, setting, proxy",
                    (run.id,),
                ),
            )

    @property
    def written(self) -> float:
        """The time of the last write, in seconds since 1970."""
        files = (Path(f"{self._database.path}{end}") for end in ("", "-wal"))
        return max(file.stat().st_mtime for file in files if file.exists())

    def version(self) -> str:
        """A text that changes with the content."""
        with self._database.reading() as db:
            counts = db.execute("SELECT (SELECT count(*) FROM history), (SELECT count(*) FROM runs)").fetchone()
            ends = db.execute("SELECT count(result), sum(length(resumed)) FROM runs").fetchone()
        return "-".join(str(count or 0) for count in (*counts, *ends))


@contextmanager
def reading(path: str | Path) -> Iterator[Reader]:
    """Opens the store at `path` for reading; StoreError if there is none."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise StoreError(f"The store '{path}' {what}: name the file that a search was given as --store.")
    database = Database(str(path), _connected(path))
    with closing(database), database.reading() as db:
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            raise StoreError(f"The store '{path}' is empty: no run was begun in it.")
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"'{path}' is an SQLite database of another program, not a store: name another file.")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise StoreError(
                f"The store '{path}' has format {version}, this EpochZero reads {VERSION}: report on it with the "
                "release that wrote it."
            )
        db.execute("BEGIN")
        yield Reader(database)


def _connected(path: Path) -> sqlite3.Connection:
    """A read-only connection; immutable if the disk is read-only, where SQLite cannot write its log."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            connection = sqlite3.connect(
                f"file:{quote(str(path.resolve()))}?{mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                return connection  # the reader reports the error
        else:
            return connection
    raise StoreError(f"The store '{path}' cannot be opened: check that you may read it.")
