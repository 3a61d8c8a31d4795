"""Worker processes are started, and get ready for a task, before they are asked for scores."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from epochzero import data
from epochzero.cli.plugin import load_plugins
from epochzero.engine import parse
from epochzero.errors import UserError
from epochzero.executors.processes import Processes
from epochzero.executors.worker import Failure, Recipe, answer
from epochzero.registry import spaces
from epochzero.study.task import Task

SPACE = spaces["nb201"]
TASK = Task(SPACE, [parse("params")], data.pink((3, 8, 8), size=2))


def test_the_workers_that_were_started_are_those_that_score() -> None:
    with Processes(2) as crew:
        crew.start()
        begun = set(crew._all)
        crew.ready(TASK)
        assert len(crew.score(TASK, [SPACE.smallest()] * 3)) == 3
        assert crew._all == begun and len(begun) == 2


def test_what_went_wrong_meanwhile_is_told_when_scores_are_asked_for(tmp_path: Path) -> None:
    with Processes(1, prepare=partial(load_plugins, [str(tmp_path / "gone.py")])) as crew:
        crew.ready(TASK)
        for _ in range(2):
            with pytest.raises(UserError, match="no file"):
                crew.score(TASK, [SPACE.smallest()])


def test_a_bug_before_the_first_network_is_a_sentence() -> None:
    def recipe() -> Recipe:
        raise ValueError("Too wide.")

    found = answer(("new",), recipe, [])
    assert isinstance(found, Failure)
    assert found.sentence == "A worker failed on what comes before the first network: ValueError: Too wide."
