"""Batches in advance: the same search with any workers, also after a stop; another one than without."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import epochzero as ez
from epochzero import data
from epochzero.errors import UserError
from epochzero.executors.ahead import Ahead, announced
from epochzero.executors.base import ScoredBatch
from epochzero.executors.local import Local
from epochzero.executors.processes import Processes
from epochzero.registry import searches
from epochzero.store import JSON
from epochzero.study.result import Result
from epochzero.study.task import Task
from epochzero.testing.searches import check_search
from tests.command import refusal
from tests.study.test_resume import content

IMAGES = data.pink((3, 8, 8), size=2)
SMALL = {"batch": 5, "population": 8, "tournament": 3}


def search(store: Path, executor: Any, ahead: int, budget: int = 33, **given: Any) -> Result:
    given = {"proxy": "rank(l2_norm,params)", "options": SMALL} | given
    return ez.search(budget=budget, store=store, executor=executor, data=IMAGES, seed=3, ahead=ahead, **given)


def test_a_search_ahead_is_the_same_whoever_scores(tmp_path: Path) -> None:
    calm = search(tmp_path / "local.db", Local(1), 2)
    with Processes(2) as executor:
        spread = search(tmp_path / "processes.db", executor, 2)
    assert (spread.run, spread.merits, spread.evaluated) == (calm.run, calm.merits, 33)
    assert content(tmp_path / "processes.db") == content(tmp_path / "local.db")
    plain = search(tmp_path / "plain.db", Local(1), 0)
    assert plain.run != calm.run and plain.table() != calm.table()


class Interrupted(Local):
    """Scores some batches, then is interrupted."""

    def __init__(self, batches: int) -> None:
        super().__init__(1)
        self.left = batches

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().score(task, archs)


@pytest.mark.parametrize("batches", [0, 1, 2, 5])
def test_a_search_ahead_resumes(tmp_path: Path, batches: int) -> None:
    calm = search(tmp_path / "calm.db", Local(1), 2)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "stopped.db", Interrupted(batches), 2)
    resumed = search(tmp_path / "stopped.db", Local(1), 2)
    assert resumed.recalled == 5 * batches and resumed.merits == calm.merits
    assert content(tmp_path / "stopped.db") == content(tmp_path / "calm.db")


class Waiting:
    """Lets no batch go before the next two are begun, as far as there are any."""

    elsewhere, shared, workers = False, True, 2

    def __init__(self, batches: int) -> None:
        self.begun = [threading.Event() for _ in range(batches)]
        self.count = 0
        self.lock = threading.Lock()

    def about(self) -> dict[str, JSON]:
        return {"name": "waiting"}

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        with self.lock:
            number, self.count = self.count, self.count + 1
        self.begun[number].set()
        for event in self.begun[number : number + 3]:
            assert event.wait(60), "the batches in advance are not begun"
        with self.lock:  # torch in one thread at a time
            return task.score(archs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def test_workers_begin_with_batches_in_advance(tmp_path: Path) -> None:
    waiting = Waiting(7)
    found = search(tmp_path / "waiting.db", waiting, 2)
    assert waiting.count == 7 and found.merits == search(tmp_path / "local.db", Local(1), 2).merits


def test_an_executor_without_workers_scores_when_asked() -> None:
    with announced(Local(1), 3) as here, announced(Waiting(0), 0) as none, announced(Waiting(0), 3) as many:
        assert isinstance(here, Local) and isinstance(none, Waiting) and isinstance(many, Ahead)


def test_an_error_in_a_batch_in_advance_is_told(tmp_path: Path) -> None:
    class Failing(Waiting):
        def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
            raise UserError("No.")

    with pytest.raises(UserError, match=r"^No\.$"):
        search(tmp_path / "run.db", Failing(7), 2)


OVERLAPS = {name: getattr(searches[name], "overlaps", False) for name in searches}


def test_which_methods_can_be_ahead() -> None:
    assert {name for name, able in OVERLAPS.items() if not able} == {"hnas", "local_search", "robot", "te_nas"}


@pytest.mark.parametrize("name", [name for name, able in OVERLAPS.items() if able])
def test_methods_keep_their_contract_ahead(name: str) -> None:
    check_search(name)


def test_refusals(tmp_path: Path) -> None:
    for ahead in (-1, 1001):
        with pytest.raises(UserError, match=rf"^--ahead takes a number of batches from 0 to 1,000, not {ahead}\.$"):
            search(tmp_path / "run.db", Local(1), ahead)
    sentence = refusal("search", "--method", "local_search", "--ahead", 1)
    assert sentence.startswith("The search local_search chooses each batch by the scores of all before")
    assert "--ahead means nothing to it" in refusal("search", "--method", "nasi", "--ahead", 1)
