"""`python -m epochzero.bare search --method nasi`: its result, resuming from a store, sentences for mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epochzero import data
from epochzero.bare.__main__ import parser_of
from epochzero.bare.search import search
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.study import inside
from epochzero.supernet import State, make
from epochzero.supernet.nasi import Nasi
from tests.fresh import Fresh

SMALL = [
    "--method",
    "nasi",
    "--data-seed",
    "0",
    "--proxy",
    "l2_norm",
    "--batch-size",
    "4",
    "--input-shape",
    "3,8,8",
    "--device",
    "cpu",
]
TINY = ["--option", "channels=2", "--option", "cells=1"]


def found(out: Path, *more: str) -> dict[str, Any]:
    search(parser_of("search").parse_args([*SMALL, *TINY, "--out", str(out), *more]))
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return written


def test_it_writes_what_the_search_finds(tmp_path: Path) -> None:
    written = found(
        tmp_path / "a.json", "--steps", "3", "--seed", "2", "--data", "white", "--parts", "3", "--option", "nu=adaptive"
    )
    batch = data.white((3, 8, 8), size=4, parts=3)
    space = spaces["nb201"]
    expected = make("nasi", space, batch, 2, "cpu", {"nu": "adaptive", "channels": 2, "cells": 1}).run(3)
    assert written["arch"] == space.text(expected.arch)
    assert written["weights"] == expected.weights
    assert written["trajectory"] == expected.trajectory
    assert written["steps"] == 3
    assert written["seconds"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_it_resumes_from_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--option", "nu=50", "--parts", "2"]
    whole = found(tmp_path / "whole.json", *given, "--steps", "4")
    kept = [*given, "--store", str(tmp_path / "run.db")]
    monkeypatch.setattr(inside, "EVERY", 0.0)
    step, taken = Nasi.standing, []

    def stop_at_two(self: Nasi, state: State) -> str:
        taken.append(state["step"])
        if state["step"] == 2:
            raise KeyboardInterrupt
        return step(self, state)

    monkeypatch.setattr(Nasi, "standing", stop_at_two)
    with pytest.raises(KeyboardInterrupt):
        found(tmp_path / "a.json", *kept, "--steps", "4")
    half = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert half["steps"] == 2 and half["stopped"] == "it was interrupted"
    monkeypatch.undo()
    rest = found(tmp_path / "a.json", *kept, "--steps", "4")
    same = ("arch", "steps", "weights", "trajectory")
    assert {name: rest[name] for name in same} == {name: whole[name] for name in same}
    assert found(tmp_path / "a.json", *kept, "--steps", "5")["steps"] == 5


def test_zero_cost_pt_runs(tmp_path: Path) -> None:
    written = found(tmp_path / "a.json", "--method", "zero_cost_pt", "--steps", "6", "--option", "proxy=synflow")
    assert spaces["nb201"].parse(written["arch"])
    assert len(written["trajectory"]["score"]) == 6


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--method", "nasy"], "No search is called 'nasy'. Did you mean 'nasi'"),
        (["--space", "resnet"], "The space 'resnet' has no relaxed network"),
        (["--option", "nu"], "--option takes key=value, not 'nu'"),
        (["--option", "mew=1"], "has no option 'mew'"),
        (["--steps", "-1", "--parts", "2"], "at least 1 step, not -1"),
        (["--data", "nowhere.npz"], "There is no file or folder nowhere.npz"),
        (["--device", "nothing"], "The device 'nothing' cannot be used here"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, more: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        found(tmp_path / "a.json", *more)
    assert not list(tmp_path.iterdir())


def test_the_result_is_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ends with \.json"):
        found(tmp_path / "a.csv")


def test_it_needs_torch_and_numpy_alone(tmp_path: Path, fresh: Fresh) -> None:
    """Refused first, in a sentence, and then run: both in one new process."""
    program = (
        "import runpy, sys\n"
        "given = sys.argv[1:]\n"
        "sys.argv[1:] = ['search', '--space', 'nb21', '--out', 'a.json']\n"
        "try:\n"
        "    runpy.run_module('epochzero.bare', run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert stop.code == 2, stop.code\n"
        "else:\n"
        "    raise AssertionError('nb21 was searched')\n"
        "sys.argv[1:] = given\n"
        "runpy.run_module('epochzero.bare', run_name='__main__')\n"
    )
    given = ["search", *SMALL, *TINY, "--steps", "1", "--option", "nu=9", "--out", str(tmp_path / "a.json")]
    done = fresh.bare(program, *given)
    assert done.code == 0, done.err
    assert spaces["nb201"].parse(done.out.strip().partition("  ")[0])
    assert done.err.startswith("error: No space is called 'nb21'.")
    assert "Traceback" not in done.err
