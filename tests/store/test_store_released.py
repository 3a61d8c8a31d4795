"""Stores of every released format open, whole, with this release; one of a newer format is refused elsewhere."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from epochzero.report.reading import reading
from epochzero.store import Store, database
from epochzero.types import Score, Setting

RELEASED = Path(__file__).parent / "released"


@pytest.mark.parametrize("version", range(1, database.VERSION + 1))
def test_a_store_of_an_earlier_release_opens(tmp_path: Path, version: int) -> None:
    path = tmp_path / "run.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((RELEASED / f"{version}.sql").read_text())
    with reading(path) as reader:
        assert len(list(reader.rows(reader.chosen()))) == 4
    with Store.open(path) as store:
        (run,) = store.runs()
        assert (run.id, run.state, dict(run.result or {})) == ("0594cbd785a7a8d9", "finished", {"best": "a"})
        assert run.saved() == {"generation": 3}
        (steps,) = run.history().values()
        first, second = (one.scores for one in steps)
        assert first["dextr"] == (Score(1.5), 0.25)
        assert (first["naswot"][0].status, first["naswot"][0].why) == ("degenerate", "det K = 0")
        assert math.copysign(1, second["dextr"][0].value) == -1 and second["naswot"][0].value == math.inf
        again = store.begin_run("search", {"space": "nb201", "seed": 0}, {})
        assert again.id == run.id and len(again.resumed) == 2
        again.record(Setting("nb201", "pink-s0-1", "default:0"), steps)
        assert again.so_far() == (2, 1.5)


def test_there_is_a_store_of_every_format() -> None:
    assert {path.name for path in RELEASED.iterdir()} == {f"{n}.sql" for n in range(1, database.VERSION + 1)}
