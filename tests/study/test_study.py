"""Ask and tell, and the one result of every search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import epochzero as ez
from epochzero import data
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.study.task import Task
from epochzero.types import Score

SPACE = spaces["nb201"]
IMAGES = data.pink((3, 8, 8), size=2)


def params(arch: object) -> float:
    return float(SPACE.plan(arch).params)


def test_a_study_finds_what_a_search_by_feedback_finds() -> None:
    options = {"population": 6, "tournament": 3, "batch": 4}
    study = ez.Study(method="evolution", seed=3, options=options)
    while study.result().evaluated < 24:
        archs = study.ask(4)
        study.tell(archs, [params(arch) for arch in archs])
    searched = ez.search(proxy=ez.Feedback(params), budget=24, seed=3, options=options, data=IMAGES)
    found = study.result()
    assert found.best == searched.best or (found.winner.text, found.winner.score) == (
        searched.winner.text,
        searched.winner.score,
    )
    assert [step.text for step in found.history] == [step.text for step in searched.history]


def test_a_study_resumes_from_its_store(tmp_path: Path) -> None:
    def run(stop: int) -> tuple[list[str], int, str]:
        asked = 0
        with ez.Study(seed=1, options={"population": 4, "tournament": 2}, store=tmp_path / "study.db") as study:
            while study.result().evaluated < 16:
                archs = study.ask(4)
                for arch in archs:
                    if asked == stop:
                        return [], asked, ""
                    asked += 1
                    study.tell([arch], [params(arch)])
            result = study.result()
            return [step.text for step in result.history], asked, result.winner.text

    assert run(stop=6)[1] == 6
    resumed, asked, best = run(stop=100)
    assert asked == 10 and len(resumed) == 16
    calm = ez.Study(seed=1, options={"population": 4, "tournament": 2})
    while calm.result().evaluated < 16:
        archs = calm.ask(4)
        calm.tell(archs, [params(arch) for arch in archs])
    assert [step.text for step in calm.result().history] == resumed
    assert calm.result().winner.text == best


def test_a_study_takes_networks_without_a_score_and_refuses_strangers() -> None:
    study = ez.Study(method="random")
    archs = study.ask(3)
    study.tell(archs, [None, float("nan"), Score.failed("out of memory")])
    assert study.result().best is None and sum(study.result().unscored.values()) == 3
    with pytest.raises(UserError, match="was not asked for, or its score is known already"):
        study.tell(archs[:1], [1.0])
    with pytest.raises(UserError, match="scores a pool of its own first"):
        ez.Study(method="top_k")


def test_several_proxies_are_combined_by_rank() -> None:
    given: dict[str, Any] = {"method": "random", "budget": 8, "data": IMAGES}
    several = ez.search(proxy=["l2_norm", "params"], **given)
    assert several.best == ez.search(proxy="rank(l2_norm,params)", **given).best
    assert several.text == "rank(l2_norm,params)"
    assert ez.search(proxy=["l2_norm"], **given).text == "l2_norm"


def test_python_and_the_command_line_have_the_same_budget() -> None:
    assert ez.search(proxy="params", method="random", data=IMAGES).evaluated == 300


def test_a_result_is_short_to_print_and_has_its_history(tmp_path: Path) -> None:
    result = ez.search(proxy="params", method="random", budget=5, data=IMAGES)
    assert isinstance(result, ez.Result) and result.front is None
    assert len(repr(result)) < 300 and "5 networks" in repr(result)
    table = result.table()
    assert list(table) == ["arch", "params"] and len(table["arch"]) == 5
    assert max(table["params"]) == result.winner.score.value == result.plan.params
    assert [step.scores["params"] for step in result.history] == table["params"]
    assert "params" in result.trust and "nb201" in result.trust
    with pytest.raises(UserError, match="store on disk"):
        result.report(tmp_path / "report.html")
    with pytest.raises(UserError, match="has no front"):
        _ = result.members


def test_a_result_of_several_objectives_has_a_front() -> None:
    result = ez.search(objectives="params,-flops", budget=32, data=IMAGES)
    assert result.front is not None and len(result.front) == len(result.members) >= 1
    assert result.best is not None and result.best.text == result.members[0].text


def test_a_result_writes_its_report(tmp_path: Path) -> None:
    result = ez.search(proxy="params", method="random", budget=3, data=IMAGES, store=tmp_path / "run.db")
    assert result.report(tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_plan_is_short_to_print() -> None:
    plan = SPACE.plan(SPACE.smallest())
    assert len(repr(plan)) < 200


def test_a_public_name_is_in_dir() -> None:
    assert {"score", "search", "space", "Score", "Result", "Plan", "Network", "Study", "Batch", "Store", "Origin"} <= {
        *dir(ez)
    }


def test_no_helper_of_the_package_is_in_dir() -> None:
    assert not {"Any", "annotations", "import_module", "moved", "version"} & {*dir(ez)}


def test_a_task_keeps_its_executor_out_of_its_name() -> None:
    assert "executor" not in repr(Task(SPACE, [], IMAGES))
