"""`python -m epochzero.bare search`: what it finds, that nothing is beyond its limits, and sentences for mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import epochzero as ez
from epochzero import data
from epochzero.bare.__main__ import parser_of
from epochzero.bare.search import check_tf32, search
from epochzero.engine import parse
from epochzero.errors import MachineError, UserError
from epochzero.registry import spaces
from epochzero.study.task import Task
from tests.fresh import Fresh

SPACE = spaces["nb201"]
SMALL = ["--proxy", "l2_norm", "--batch-size", "2", "--input-shape", "3,8,8", "--device", "cpu"]


def found(out: Path, *more: str) -> dict[str, Any]:
    told = search(parser_of("search").parse_args([*SMALL, "--out", str(out), *more]))
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(told))
    return written


def test_it_finds_what_the_library_finds(tmp_path: Path) -> None:
    few = ["--budget", "20", "--option", "population=8", "--option", "tournament=3", "--seed", "4"]
    written = found(tmp_path / "a.json", *few, "--max-params", "0.5M")
    expected = ez.search(
        proxy="l2_norm",
        budget=20,
        max_params=500_000,
        data=data.pink((3, 8, 8), size=2, seed=4),
        seed=4,
        options={"population": 8, "tournament": 3},
    )
    plan = SPACE.plan(expected.winner.arch, 10, (3, 8, 8))
    best = {"arch": expected.winner.text, "score": expected.winner.score.value}
    assert written["best"] == {**best, "params": plan.params, "flops": plan.flops}
    assert written["top"][0] == best and len(written["top"]) == 15
    assert (written["evaluated"], written["unscored"], written["stopped"]) == (20, {}, "")
    assert written["options"] == {"population": 8, "tournament": 3}
    assert written["a_second"] == pytest.approx(20 / written["seconds"])
    assert sum(written["clock"].values()) == pytest.approx(written["seconds"])


def test_time_that_is_up_at_once_allows_a_first_batch(tmp_path: Path) -> None:
    written = found(tmp_path / "a.json", "--time-limit", "1e-9")
    assert written["evaluated"] > 0 and written["stopped"] == "the time limit of 1e-09 s"


def test_the_largest_of_all_that_was_scored_is_told(tmp_path: Path) -> None:
    written = found(tmp_path / "a.json", "--method", "random", "--budget", "60", "--max-flops", "3M")
    assert written["limits"] == {"params": None, "flops": 3_000_000} and written["beyond"] == 0
    sizes = [SPACE.plan(SPACE.parse(one["arch"]), 10, (3, 8, 8)).flops for one in written["top"]]
    assert max(sizes) <= written["largest"]["flops"] <= 3_000_000


def test_a_table_s_networks_are_the_only_candidates(tmp_path: Path) -> None:
    cells = [SPACE.text(cell) for cell in Random(3).sample(list(SPACE), 12)]
    with (tmp_path / "cells.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["arch_str", "accuracy"], *([cell, 90] for cell in cells)])
    written = found(tmp_path / "a.json", "--among", str(tmp_path / "cells.csv"), "--budget", "50")
    assert written["evaluated"] == 12 and {one["arch"] for one in written["top"]} == set(cells)
    assert written["stopped"] == "the search has no more networks to evaluate"


def test_it_goes_on_from_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--method", "random", "--budget", "12", "--store", str(tmp_path / "run.db")]
    first = found(tmp_path / "a.json", *given)
    monkeypatch.setattr("epochzero.study.task.Task.score", lambda *_: pytest.fail("a stored score was computed again"))
    assert found(tmp_path / "b.json", *given)["best"] == first["best"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--budget", "0"], "at least 1 evaluation, not 0"),
        (["--max-params", "1k"], "the smallest has 73,306"),
        (["--max-flops", "lots"], "--max-flops takes a number such as"),
        (["--option", "population=many"], "takes int for 'population'"),
        (["--option", "populatoin=9"], "Did you mean 'population'"),
        (["--workers", "0"], "The number of workers is 0"),
        (["--proxy", "dexter"], "Did you mean 'dextr'"),
        (["--among", "nowhere.csv"], "There is no file nowhere.csv"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, more: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        found(tmp_path / "a.json", *more)
    assert not list(tmp_path.iterdir())


def test_a_proxy_without_any_score_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(
        MachineError, match="None of the 3 networks has a tf_tas score; most often: is for transformers"
    ):
        found(tmp_path / "a.json", "--proxy", "tf_tas", "--budget", "3")


def test_it_needs_torch_and_numpy_alone(tmp_path: Path, fresh: Fresh) -> None:
    program = "import runpy; runpy.run_module('epochzero.bare', run_name='__main__')"
    given = ["search", *SMALL, "--budget", "3", "--method", "random", "--out", str(tmp_path / "a.json")]
    done = fresh.bare(program, *given)
    assert done.code == 0, done.err
    arch, _, facts = done.out.strip().partition("  ")
    assert SPACE.parse(arch) and facts.endswith("multiply-accumulates")


def test_a_search_with_tf32_needs_evidence_that_the_ranking_survives() -> None:
    def task(space: str, *names: str) -> Task:
        return Task(spaces[space], [parse(name) for name in names], data.pink((3, 8, 8), size=2))

    check_tf32(task("nb101", "grad_norm", "naswot", "flops"))
    with pytest.raises(UserError, match=r"the ranking of nb101 by dextr, sigeo\(batches=2\) survives TF32: leave out"):
        check_tf32(task("nb101", "grad_norm", "dextr", "sigeo(batches=2)"))
    with pytest.raises(UserError, match="the ranking of nb201 by grad_norm survives TF32"):
        check_tf32(task("nb201", "grad_norm"))


def test_a_store_does_not_take_scores_with_tf32(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not distinguish scores with TF32 from those in single precision"):
        found(tmp_path / "a.json", "--tf32", "--store", str(tmp_path / "run.db"))
    assert not (tmp_path / "run.db").exists()
