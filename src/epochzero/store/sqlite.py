"""Scores and runs on disk.

    with Store.open("run.db") as store:
        run = store.begin_run("search", settings, manifest(settings))
        known = store.scores(setting, "dextr", archs)                      # {arch: Score}
        run.record(setting, [Evaluated(step, arch, {"dextr": (score, seconds)}), ...])
        run.finish({"best": arch})

A run that was killed is resumed by doing the same again from the start: `begin_run` finds the run, `scores`
has what was computed already, and to `record` something a second time changes nothing.
In the `sqlite3` shell the views `all_scores` and `all_history` show everything as plain text.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, TypeAlias

from epochzero.errors import StoreError, UserError
from epochzero.files import work_folder
from epochzero.store.database import STATES, Database
from epochzero.types import Score, Setting, Status

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

LOOK_UP = 500  # architectures in one query: SQLite promises room for 999 parameters


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One step of a run: an architecture, and by proxy its score with the seconds that it took."""

    step: int
    arch: str
    scores: Mapping[str, tuple[Score, float]]


class ScoreRow(NamedTuple):
    """One stored score with all that it depends on, as plain text; `value` is None unless `status` is ok."""

    space: str
    arch: str
    proxy: str
    batch: str
    origin: str
    value: float | None
    status: Status
    why: str
    seconds: float


CELLS = {(*[str] * 5, *kinds, str, float) for kinds in ((float, str), (type(None), str))}
"""types of the values in a row of scores"""


class Store:
    """Scores on disk: SQLite in WAL mode, keyed by everything that a score depends on."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open the store at `path`, or make one if there is none; `:memory:` keeps it off the disk."""
        return cls(Database.open(path))

    @property
    def path(self) -> str:
        return self._database.path

    def scores(self, setting: Setting, proxy: str, archs: Sequence[str]) -> dict[str, Score]:
        """Returns the stored scores of `archs`."""
        scores: dict[str, Score] = {}
        with self._database.reading() as db:
            for start in range(0, len(archs), LOOK_UP):
                some = archs[start : start + LOOK_UP]
                rows = db.execute(
                    "SELECT arch, value, status, why FROM scores "
                    "WHERE setting = (SELECT id FROM settings WHERE space = ? AND batch = ? AND origin = ?) "
                    "AND proxy = (SELECT id FROM proxies WHERE name = ?) "
                    f"AND arch IN ({','.join('?' * len(some))})",
                    (setting.space, setting.batch, setting.origin, proxy, *some),
                )
                scores.update((arch, _score(value, status, why)) for arch, value, status, why in rows)
        return scores

    def archs(self, setting: Setting) -> list[str]:
        """Returns the architectures with a stored score in this setting, sorted as text."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT arch FROM scores WHERE setting = "
                "(SELECT id FROM settings WHERE space = ? AND batch = ? AND origin = ?) ORDER BY arch",
                (setting.space, setting.batch, setting.origin),
            )
            return [arch for (arch,) in rows]

    def add_scores(self, rows: Iterable[ScoreRow]) -> int:
        """Store these, all or, where one cannot be read, none; how many were new. What is stored stays as it is."""
        new = 0
        ids: dict[Setting | str, int] = {}
        with self._database.writing() as db:
            for row in rows:
                setting = Setting(row.space, row.batch, row.origin)
                if setting not in ids:
                    ids[setting] = _setting_id(db, setting)
                if row.proxy not in ids:
                    ids[row.proxy] = _proxy_id(db, row.proxy)
                new += db.execute(
                    "INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (ids[setting], ids[row.proxy], row.arch, row.value, row.status, row.why, row.seconds),
                ).rowcount
        return new

    def all_scores(self) -> Iterator[ScoreRow]:
        """Every stored score, by space, batch, origin, proxy and architecture, without loading them all."""
        with self._database.reading() as db:
            rows = db.execute("SELECT * FROM all_scores ORDER BY space, batch, origin, proxy, arch")
            for row in rows:
                if tuple(map(type, row)) not in CELLS:
                    raise self._database.damaged()
                yield ScoreRow._make(row)

    def begin_run(self, kind: str, settings: Mapping[str, JSON], manifest: Mapping[str, JSON]) -> Run:
        """Begin the run that `kind` and `settings` define, or resume it if it was begun before.

        A resumed run keeps its first manifest; the time is noted in `resumed`.
        """
        name = run_id(kind, settings)
        with self._database.writing() as db:
            new = db.execute(
                "INSERT INTO runs (id, kind, settings, manifest, resumed) VALUES (?, ?, ?, ?, '[]') "
                "ON CONFLICT DO NOTHING",
                (name, kind, _to_json(settings), _to_json(manifest)),
            ).rowcount
            if not new:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                db.execute("UPDATE runs SET resumed = json_insert(resumed, '$[#]', ?) WHERE id = ?", (now, name))
        return next(self._runs("WHERE id = ?", name))

    def runs(self, latest: int | None = None) -> list[Run]:
        """Every run, or only the latest, in the order in which they began."""
        if latest is None:
            return list(self._runs("ORDER BY number"))
        return list(self._runs("ORDER BY number DESC LIMIT ?", latest))[::-1]

    def run_count(self) -> int:
        """The number of runs."""
        with self._database.reading() as db:
            return int(db.execute("SELECT count(*) FROM runs").fetchone()[0])

    def backup(self, path: str | Path) -> None:
        """Copies the store as it is now to another file, while others may write to it."""
        path = separate(path, self.path, "backup")
        try:
            with work_folder(path.parent) as place:
                self._database.copy_to(place / "copy.db")
                (place / "copy.db").replace(path)
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"'{path}' cannot be written ({error}): check its folder and disk.") from error

    def _runs(self, which: str, *parameters: str | int) -> Iterator[Run]:
        columns = "id, kind, settings, manifest, resumed, result, number"
        with self._database.reading() as db:
            rows = db.execute(f"SELECT {columns} FROM runs {which}", parameters).fetchall()
        for name, kind, settings, manifest, resumed, result, number in rows:
            yield Run(
                name,
                kind,
                self._database.loaded(settings, dict),
                self._database.loaded(manifest, dict),
                self._database.loaded(resumed, list),
                None if result is None else self._database.loaded(result, dict),
                self._database,
                number,
            )

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(eq=False)
class Run:
    """One search or benchmark: its definition, its evaluations so far, and its result."""

    id: str
    kind: str
    settings: Mapping[str, JSON]
    manifest: Mapping[str, JSON]
    resumed: Sequence[str]
    """times at which it was resumed, in UTC"""
    result: Mapping[str, JSON] | None
    _database: Database = field(repr=False)
    _number: int = field(repr=False)

    @property
    def state(self) -> Literal["unfinished", "finished"]:
        """An unfinished run is running or was interrupted; a killed run cannot record that."""
        return "unfinished" if self.result is None else "finished"

    def record(self, setting: Setting, results: Sequence[Evaluated]) -> None:
        """Stores a batch of steps and their new scores in one transaction.

        Existing scores stay unchanged: the seconds of a score that was looked up do not matter.
        """
        with self._database.writing() as db:
            where = _setting_id(db, setting)
            asked = dict.fromkeys(proxy for result in results for proxy in result.scores)
            proxy_ids = {proxy: _proxy_id(db, proxy) for proxy in asked}
            recorded = self._recorded(db, where, [result.step for result in results])
            scores, steps = [], []
            for result in results:
                for proxy, (score, seconds) in result.scores.items():
                    proxy_id = proxy_ids[proxy]
                    kept = recorded.get((result.step, proxy_id))
                    if kept is None:
                        scores.append((where, proxy_id, result.arch, *_columns(score), float(seconds)))
                        steps.append((self._number, result.step, where, proxy_id, result.arch))
                    elif kept != result.arch:
                        raise StoreError(
                            f"The run {self.id} in the store '{self._database.path}' was started by other code: step "
                            f"{result.step} was '{kept}' then and is '{result.arch}' now. Choose another file."
                        )
            db.executemany("INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", scores)
            db.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?)", steps)

    def _recorded(self, db: sqlite3.Connection, setting: int, steps: Sequence[int]) -> dict[tuple[int, int], str]:
        """The architectures of these steps so far, by step and proxy."""
        rows = db.execute(
            "SELECT step, proxy, arch FROM history WHERE run = ? AND step BETWEEN ? AND ? AND setting = ?",
            (self._number, min(steps, default=0), max(steps, default=-1), setting),
        )
        return {(step, proxy): arch for step, proxy, arch in rows}

    def so_far(self) -> tuple[int, float]:
        """Returns the number of recorded steps, and the seconds that it took to compute their scores."""
        with self._database.reading() as db:
            (steps,) = db.execute("SELECT count(DISTINCT step) FROM history WHERE run = ?", (self._number,)).fetchone()
            (seconds,) = db.execute(
                "SELECT total(seconds) FROM (SELECT setting, proxy, arch FROM history WHERE run = ? "
                "ORDER BY setting, proxy, arch) JOIN scores USING (setting, proxy, arch)",  # the order of the scores
                (self._number,),
            ).fetchone()
        return int(steps), float(seconds)

    def history(self) -> dict[Setting, list[Evaluated]]:
        """Returns the recorded evaluations by setting, in the order of the steps."""
        scores: dict[tuple[Setting, int, str], dict[str, tuple[Score, float]]] = {}
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT space, batch, origin, step, arch, proxy, value, status, why, seconds "
                "FROM all_history WHERE run = ? ORDER BY step, proxy",
                (self.id,),
            )
            for space, batch, origin, step, arch, proxy, value, status, why, seconds in rows:
                key = (Setting(space, batch, origin), step, arch)
                scores.setdefault(key, {})[proxy] = (_score(value, status, why), seconds)
        history: dict[Setting, list[Evaluated]] = {}
        for (setting, step, arch), by_proxy in scores.items():
            history.setdefault(setting, []).append(Evaluated(step, arch, by_proxy))
        return history

    def save(self, state: Mapping[str, JSON]) -> None:
        """Stores the state of the run in place of an earlier one."""
        with self._database.writing() as db:
            db.execute(STATES)
            db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (self._number, _to_json(state)))

    def saved(self) -> dict[str, JSON] | None:
        """Returns the state that `save` stored last."""
        with self._database.reading() as db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'states'").fetchone() is None:
                return None
            row = db.execute("SELECT state FROM states WHERE run = ?", (self._number,)).fetchone()
        return None if row is None else self._database.loaded(row[0], dict)

    def finish(self, result: Mapping[str, JSON]) -> None:
        """Stores the result. A finished run keeps its first result."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE runs SET result = ? WHERE number = ? AND result IS NULL",
                (_to_json(result), self._number),
            )
            (kept,) = db.execute("SELECT result FROM runs WHERE number = ?", (self._number,)).fetchone()
        self.result = self._database.loaded(kept, dict)


def run_id(kind: str, settings: Mapping[str, JSON]) -> str:
    """The id of the run that kind and settings define."""
    identity = json.dumps([kind, dict(settings)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def separate(path: str | Path, store: str, what: str) -> Path:
    """The path of another file than the store; UserError for the store itself, or a folder."""
    path = Path(path)
    if path.is_dir() or path.resolve() == Path(store).resolve():
        is_what = "a folder" if path.is_dir() else "the store itself"
        raise UserError(f"The {what} cannot be written to '{path}', which is {is_what}: choose another file.")
    return path


def _setting_id(db: sqlite3.Connection, setting: Setting) -> int:
    key = (setting.space, setting.batch, setting.origin)
    db.execute("INSERT INTO settings (space, batch, origin) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", key)
    row = db.execute("SELECT id FROM settings WHERE space = ? AND batch = ? AND origin = ?", key).fetchone()
    return int(row[0])


def _proxy_id(db: sqlite3.Connection, proxy: str) -> int:
    db.execute("INSERT INTO proxies (name) VALUES (?) ON CONFLICT DO NOTHING", (proxy,))
    return int(db.execute("SELECT id FROM proxies WHERE name = ?", (proxy,)).fetchone()[0])


def _columns(score: Score) -> tuple[float | None, str, str]:
    why = score.why.encode(errors="backslashreplace").decode()  # a message may quote bytes that are not text
    return (float(score.value) if score.ok else None, score.status, why)


def _score(value: float | None, status: Status, why: str) -> Score:
    return Score(math.nan if value is None else value, status, why)


def _to_json(mapping: Mapping[str, JSON]) -> str:
    return json.dumps(dict(mapping), allow_nan=False)
