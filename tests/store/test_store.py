"""The store: exact values, whole transactions, resumed runs, several processes."""

from __future__ import annotations

import math
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epochzero
from epochzero.errors import StoreError
from epochzero.store import JSON, Evaluated, Run, Store
from epochzero.types import Score, Setting

SETTING = Setting("nb201", "noise:0", "default:0")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "run.db") as store:
        yield store


def begin(store: Store, **settings: JSON) -> Run:
    return store.begin_run("search", settings, {"started": "now"})


def batch(values: Mapping[str, Score], proxy: str = "dextr", first: int = 0) -> list[Evaluated]:
    return [Evaluated(first + i, arch, {proxy: (score, 0.5)}) for i, (arch, score) in enumerate(values.items())]


def connection(store: Store) -> sqlite3.Connection:
    with store._database.reading() as db:
        return db


# Scores


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 0.1, 1 / 3, -7.0, 1e-320, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, math.inf, -math.inf],
)
def test_a_value_comes_back_to_the_last_bit(tmp_path: Path, value: float) -> None:
    with Store.open(tmp_path / "run.db") as store:
        begin(store).record(SETTING, batch({"a": Score(value)}))
    with Store.open(tmp_path / "run.db") as store:
        found = store.scores(SETTING, "dextr", ["a"])["a"]
    assert (found.value.hex(), found.status, found.why) == (value.hex(), "ok", "")


@pytest.mark.parametrize("text", ["Größe|✓~0|网络", "'; DROP TABLE scores; --", 'a"b,c\nd\0e', "", " a ", "A" * 10_000])
def test_any_text_is_an_architecture_a_proxy_and_a_reason(store: Store, text: str) -> None:
    setting = Setting(text, text, text)
    run = begin(store, note=text)
    run.record(setting, batch({text: Score.failed(text), text + "!": Score(1.0)}, proxy=text))
    assert store.scores(setting, text, [text]) == {text: Score.failed(text)}
    assert run.history()[setting][0] == Evaluated(0, text, {text: (Score.failed(text), 0.5)})
    assert store.runs()[0].settings == {"note": text}


def test_a_long_reason_and_one_that_is_not_text(store: Store) -> None:
    long = "det K = 0; " * 100_000
    begin(store).record(SETTING, batch({"a": Score.degenerate(long), "b": Score.failed("no file \udcff")}))
    found = store.scores(SETTING, "dextr", ["a", "b"])
    assert found == {"a": Score.degenerate(long), "b": Score.failed("no file \\udcff")}


def test_a_score_that_is_not_ok_has_no_value_in_the_file(store: Store) -> None:
    begin(store).record(SETTING, batch({"a": Score.degenerate("flat"), "b": Score(3.0, "failed", "odd")}))
    assert connection(store).execute("SELECT arch, value, status FROM all_scores").fetchall() == [
        ("a", None, "degenerate"),
        ("b", None, "failed"),
    ]
    assert math.isnan(store.scores(SETTING, "dextr", ["b"])["b"].value)


def test_an_ok_score_without_a_number_is_refused_with_its_whole_batch(store: Store) -> None:
    run = begin(store)
    with pytest.raises(sqlite3.IntegrityError, match="a_number_if_and_only_if_ok"):
        run.record(SETTING, batch({"a": Score(1.0), "b": Score(math.nan)}))
    assert list(store.all_scores()) == []
    assert run.history() == {}
    assert connection(store).execute("SELECT count(*) FROM settings").fetchone() == (0,)
    run.record(SETTING, batch({"a": Score(1.0)}))
    assert store.scores(SETTING, "dextr", ["a", "b"]) == {"a": Score(1.0)}


def test_numpy_numbers_are_numbers(store: Store) -> None:
    short: Any = np.float32(0.1)  # not a float, and bytes to SQLite
    results = [Evaluated(i, str(i), {"p": (Score(value), short)}) for i, value in enumerate([short, np.float64(0.1)])]
    begin(store).record(SETTING, results)
    assert [(row.value, row.seconds) for row in store.all_scores()] == [
        (float(short), float(short)),
        (0.1, float(short)),
    ]


def test_each_part_of_the_key_tells_scores_apart(store: Store) -> None:
    settings = [SETTING, Setting("other", "noise:0", "default:0"), Setting("nb201", "noise:1", "default:0")]
    settings.append(Setting("nb201", "noise:0", "default:1"))
    run = begin(store)
    keys = [(s, p, a) for s in settings for p in ("dextr", "dextr(points=4)") for a in ("a", "A")]
    for number, (setting, proxy, arch) in enumerate(keys):
        run.record(setting, batch({arch: Score(float(number))}, proxy, first=number))
    for number, (setting, proxy, arch) in enumerate(keys):
        assert store.scores(setting, proxy, [arch]) == {arch: Score(float(number))}
    assert len(list(store.all_scores())) == len(keys)


def test_looking_up_finds_what_is_there_and_nothing_else(store: Store) -> None:
    archs = [f"arch-{i}" for i in range(1201)]  # more than two queries hold
    begin(store).record(SETTING, batch({arch: Score(float(i)) for i, arch in enumerate(archs)}))
    assert store.scores(SETTING, "dextr", ["new", *archs, "arch-3"]) == {
        a: Score(float(i)) for i, a in enumerate(archs)
    }
    assert store.scores(SETTING, "dextr", []) == {}
    assert store.scores(SETTING, "zico", archs) == {}
    assert store.scores(Setting("nb101", "noise:0", "default:0"), "dextr", archs) == {}


# Runs


def test_recording_again_changes_nothing(store: Store) -> None:
    run = begin(store)
    run.record(SETTING, batch({"a": Score(1.0), "b": Score.failed("x")}))
    before = (list(store.all_scores()), run.history())
    run.record(SETTING, batch({"a": Score(2.0), "b": Score(3.0)}))
    run.record(SETTING, [])
    assert (list(store.all_scores()), run.history()) == before


def test_history_keeps_steps_proxies_and_settings_apart(store: Store) -> None:
    second_seed = Setting("nb201", "noise:0", "default:1")
    run, other = begin(store, seed=0), begin(store, seed=1)
    both = {"zico": (Score(1.0), 0.25), "dextr": (Score.degenerate("flat"), 0.5)}
    run.record(SETTING, [Evaluated(10, "b", both), Evaluated(2, "a", both), Evaluated(11, "b", both)])
    run.record(second_seed, [Evaluated(10, "b", {"dextr": (Score(7.0), 0.75)})])
    other.record(SETTING, [Evaluated(0, "b", {"zico": (Score(9.0), 9.0)})])  # the score is known already
    assert run.history() == {
        SETTING: [Evaluated(2, "a", both), Evaluated(10, "b", both), Evaluated(11, "b", both)],
        second_seed: [Evaluated(10, "b", {"dextr": (Score(7.0), 0.75)})],
    }
    assert other.history() == {SETTING: [Evaluated(0, "b", {"zico": (Score(1.0), 0.25)})]}


def test_the_same_command_resumes_the_same_run(store: Store) -> None:
    first = store.begin_run("search", {"space": "nb201", "budget": 5}, {"started": "then"})
    assert (first.state, first.resumed, first.result) == ("unfinished", [], None)
    again = store.begin_run("search", {"budget": 5, "space": "nb201"}, {"started": "now"})
    assert (again.id, again.manifest, len(again.resumed)) == (first.id, {"started": "then"}, 1)
    others = [
        store.begin_run("bench", {"space": "nb201", "budget": 5}, {}),
        begin(store, space="nb201", budget=6),
    ]
    assert [run.id for run in store.runs()] == [first.id, *(run.id for run in others)]
    assert len({run.id for run in store.runs()}) == 3


def test_a_finished_run_keeps_its_first_result(tmp_path: Path) -> None:
    with Store.open(tmp_path / "run.db") as store:
        run = begin(store)
        run.finish({"seconds": 9.5, "best": {"arch": "a"}})
        run.finish({"seconds": 0.1, "best": {"arch": "a"}})
        assert run.state == "finished"
    with Store.open(tmp_path / "run.db") as store:
        assert [(run.state, run.result) for run in store.runs()] == [
            ("finished", {"seconds": 9.5, "best": {"arch": "a"}})
        ]


def test_a_replay_that_differs_is_refused_and_leaves_no_trace(store: Store) -> None:
    run = begin(store)
    run.record(SETTING, batch({"a": Score(1.0), "b": Score(2.0)}))
    with pytest.raises(StoreError, match=r"started by other code: step 1 was 'b' then and is 'c' now") as caught:
        run.record(SETTING, batch({"a": Score(1.0), "c": Score(3.0)}))
    assert store.path in str(caught.value)
    assert [row.arch for row in store.all_scores()] == ["a", "b"]


WORKER = """
import sys
from epochzero.store import Evaluated, Store
from epochzero.types import Score, Setting

def score(arch):
    return Score(len(arch) / 7) if len(arch) % 3 else Score.degenerate("no " + arch)

path, name, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
setting = Setting("toy", "noise:0", "default:0")
with Store.open(path) as store:
    run = store.begin_run("search", {"name": name, "budget": steps}, {})
    for start in range(0, steps, 16):
        archs = ["x" * (step * 31 % 401) for step in range(start, start + 16)]
        known = [store.scores(setting, proxy, archs) for proxy in ("p", "q")]
        run.record(setting, [
            Evaluated(start + i, arch, {"p": (known[0].get(arch) or score(arch), 1.0),
                                        "q": (known[1].get(arch) or score(arch + "x"), 2.0)})
            for i, arch in enumerate(archs)])
        print(start, flush=True)
    run.finish({"evaluated": steps})
"""


def worker(path: Path, name: str = "a", steps: int = 4000) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(epochzero.__file__).parents[1])}
    command = [sys.executable, "-c", WORKER, str(path), name, str(steps)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def content(path: Path) -> tuple[Any, ...]:
    with Store.open(path) as store:
        assert connection(store).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection(store).execute("PRAGMA foreign_key_check").fetchall() == []
        runs = {run.id: (run.history(), run.result) for run in store.runs()}
        return list(store.all_scores()), runs


def test_a_run_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    finish(worker(tmp_path / "calm.db"))
    toy = Setting("toy", "noise:0", "default:0")
    rng, killed, reached = random.Random(0), 0, set[int]()
    for attempt in range(8):
        process = worker(tmp_path / "killed.db")
        assert process.stdout is not None
        if attempt == 0:  # while it starts, or makes the file
            time.sleep(rng.uniform(0, 0.1))
        for _ in range(attempt * 15):  # batches, each time more than before
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.004))
        process.kill()
        process.communicate()
        killed += process.returncode < 0
        _, runs = content(tmp_path / "killed.db")
        reached |= {len(history.get(toy, [])) for history, _ in runs.values()}
    assert killed >= 3 and len(reached) >= 3, "the kills must fall into the work"
    assert all(steps % 16 == 0 for steps in reached), "half a batch was recorded"
    finish(worker(tmp_path / "killed.db"))
    calm = content(tmp_path / "calm.db")
    assert len(calm[0]) == 2 * 401
    assert content(tmp_path / "killed.db") == calm


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    together = [worker(tmp_path / "shared.db", name, 1600) for name in ("a", "b", "b")]
    for process in together:
        finish(process)
    for name in ("a", "b"):
        finish(worker(tmp_path / "alone.db", name, 1600))
    assert content(tmp_path / "shared.db") == content(tmp_path / "alone.db")
