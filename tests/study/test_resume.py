"""Searches that are killed, and searches that share a store, end as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import epochzero as ez
from epochzero import data
from epochzero.errors import StoreError
from epochzero.store import Store
from epochzero.study.result import Result
from epochzero.study.task import Task
from tests.fresh import Fresh
from tests.study.killed_search import BATCH, BUDGET, KILLS, SHARED


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh) -> Path:
    """The files of `tests.study.killed_search`: stores, logs of computations, results."""
    folder = tmp_path_factory.mktemp("killed")
    assert fresh.module("tests.study.killed_search", folder) == (0, "", "")
    return folder


def content(path: Path) -> tuple[Any, ...]:
    """All that a store holds but times: its scores, and of each run its history and its result."""
    with Store.open(path) as store:
        scores = [row._replace(seconds=0.0) for row in store.all_scores()]
        runs = {
            run.id: (
                run.settings,
                run.state,
                run.result and {name: value for name, value in run.result.items() if name != "clock"},
                {
                    setting: [
                        (step.step, step.arch, {p: score for p, (score, _) in step.scores.items()}) for step in steps
                    ]
                    for setting, steps in run.history().items()
                },
            )
            for run in store.runs()
        }
    return scores, runs


def lives(folder: Path) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = json.loads((folder / "lives.json").read_text())
    return found


def test_the_kills_fall_into_the_work(folder: Path) -> None:
    *killed, last = lives(folder)
    assert len(killed) == KILLS
    assert sum(len(life["stored"]) < BUDGET for life in killed) >= 10
    assert len({len(life["stored"]) for life in killed}) >= 6, "the kills came at too few places of the search"
    assert any(len(life["computed"]) % BATCH for life in killed), "no batch was cut in two"
    assert all(len(life["stored"]) % BATCH == 0 for life in killed), "half a batch was stored"
    assert last["computed"], "the search was over before the last kill"


def test_a_killed_search_ends_like_an_undisturbed_one(folder: Path) -> None:
    calm, killed = content(folder / "calm.db"), content(folder / "killed.db")
    assert len(calm[0]) == BUDGET
    assert killed == calm
    winners = [json.loads(path.read_text()) for path in (folder / "calm.json", folder / f"killed.{KILLS}.json")]
    assert winners[0] == winners[1]
    assert winners[0]["evaluated"] == BUDGET


def test_no_stored_score_is_computed_again(folder: Path) -> None:
    for life in lives(folder):
        assert not set(life["stored"]) & set(life["computed"])
        assert len(life["computed"]) == len(set(life["computed"]))
    lost = sum(len(life["computed"]) for life in lives(folder)) - BUDGET
    assert 0 < lost <= KILLS * BATCH, "a kill loses a batch at most"


def test_a_resumed_run_says_so(folder: Path) -> None:
    with Store.open(folder / "killed.db") as store:
        (run,) = store.runs()
        assert 7 <= len(run.resumed) <= KILLS


def test_searches_that_share_a_store_at_the_same_time_end_right(folder: Path) -> None:
    """Two of one kind, which is one run done twice at once, and one of another."""
    alone, shared = content(folder / "alone.db"), content(folder / "shared.db")
    assert shared == alone
    assert len(shared[1]) == 2
    assert all(state == "finished" and result["evaluated"] == SHARED for _, state, result, _ in shared[1].values())


# In one process


def search(store: Path, budget: int = 12, **given: Any) -> Result:
    return ez.search(proxy="l2_norm", budget=budget, store=store, data=data.pink((3, 8, 8), size=2), **given)


def test_a_finished_search_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search(tmp_path / "run.db")
    before = content(tmp_path / "run.db")
    monkeypatch.setattr(Task, "score", lambda *_: pytest.fail("a stored score was computed again"))
    again = search(tmp_path / "run.db")
    assert again.best == first.best
    assert (again.evaluated, again.run) == (12, first.run)
    assert content(tmp_path / "run.db") == before


def test_another_search_uses_the_scores_that_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger budget is another run, which begins with the same networks."""
    search(tmp_path / "run.db", 12)
    computed: list[Any] = []
    score = Task.score

    def counted(self: Task, archs: Any) -> Any:
        computed.extend(archs)
        return score(self, archs)

    monkeypatch.setattr(Task, "score", counted)
    more = search(tmp_path / "run.db", 20)
    assert more.evaluated == 20
    assert len(computed) == 8
    with Store.open(tmp_path / "run.db") as store:
        assert [run.settings["budget"] for run in store.runs()] == [12, 20]


def test_a_search_that_fails_in_the_middle_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = search(tmp_path / "calm.db", 20)

    def stop(outcome: Result) -> None:
        if outcome.evaluated >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "run.db", 20, progress=stop)
    with Store.open(tmp_path / "run.db") as store:
        (run,) = store.runs()
        assert run.state == "unfinished"
        assert len(list(store.all_scores())) == 8
    assert search(tmp_path / "run.db", 20).best == calm.best
    assert content(tmp_path / "run.db") == content(tmp_path / "calm.db")


def test_a_run_begun_by_other_code_is_not_mixed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same settings, but the search asks for other networks than it did: nothing is overwritten."""
    search(tmp_path / "run.db", method="random")
    before = content(tmp_path / "run.db")
    space = ez.space("nb201")
    monkeypatch.setattr(type(space), "sample", lambda self, rng: tuple(rng.choices(["none", "skip_connect"], k=6)))
    with pytest.raises(StoreError, match="was started by other code: step 0 was"):
        search(tmp_path / "run.db", method="random")
    assert content(tmp_path / "run.db") == before
