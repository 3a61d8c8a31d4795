"""Recordings of NASI: every search that follows from one, resuming, tables, and errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from epochzero import data
from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.supernet import make
from epochzero.supernet import nasi as nasi_module
from epochzero_papers.__main__ import main
from epochzero_papers.nasi import grid as nasi_grid
from epochzero_papers.nasi import saved
from epochzero_papers.nasi.grid import Recording
from tests.fresh import Fresh

TINY = {"channels": 2, "cells": 1}
GIVEN = ["--data", "white", "--input-shape", "3,8,8", "--batch-size", "2", "--parts", "3", "--device", "cpu"]
OPTIONS = ["--option", "channels=2", "--option", "cells=1"]
STEPS = 5


@pytest.fixture(autouse=True)
def _few_for_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nasi_module, "SAMPLED", 4)
    monkeypatch.setattr(nasi_grid, "SAMPLED", 4)


def record(out: Path, *more: str, steps: int = STEPS) -> dict[str, Any]:
    main(["nasi-record", *GIVEN, *OPTIONS, "--out", str(out), "--steps", str(steps), *more])
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return written


def table(path: Path, cells: list[Any]) -> Path:
    """Accuracies 90, 91, ... on CIFAR-10; 20 and 40 less on the others."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["arch_str", *nasi_grid.ACCURACIES.values()])
        for i, cell in enumerate(cells):
            writer.writerow([spaces["nb201"].text(cell), 90 + i, 70 + i, 50 + i])
    return path


# One recording, many searches


@pytest.mark.parametrize(
    ("space", "more"),
    [
        ("nb201", {}),
        ("nb201", {"labels": "random", "data": "random", "without": "none"}),
        ("nb1shot1_s2", {}),
    ],
)
def test_a_recording_holds_every_search(tmp_path: Path, space: str, more: dict[str, str]) -> None:
    own = {"labels": ["--labels"], "data": ["--data-kind"], "without": ["--option"]}
    words = [word for k, v in more.items() for word in (*own[k], f"without={v}" if k == "without" else v)]
    record(tmp_path / "a.json", "--space", space, "--seed", "3", *words)
    recording = Recording.read(tmp_path / "a.json")
    batch = data.white((3, 8, 8), size=2, parts=3)
    middle = sorted(recording.state["s"])[STEPS // 2]
    found = []
    for nu, mu in (("mean", "1"), ("adaptive", "2"), (str(middle), "3"), ("0", "2")):
        search = make("nasi", spaces[space], batch, 3, "cpu", {**TINY, **more, "nu": nu, "mu": mu, "nu0": "5"})
        state = None
        for steps in (1, 3, STEPS):
            expected = search.run(steps, state=state)
            state = expected.state
            found.append(recording.chosen(steps, nu, float(mu), 5.0))
            assert found[-1] == expected.arch
            assert recording.state["s"][:steps] == expected.trajectory["s"]
    assert len(set(found)) > 3


def test_a_stopped_recording_goes_on_and_a_longer_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(tmp_path / "whole.json")
    for stop in (2, 7):
        monkeypatch.setattr(saved, "EVERY", 0.0)
        monkeypatch.setattr(saved, "print", _stopping(stop), raising=False)
        with pytest.raises(KeyboardInterrupt):
            record(tmp_path / "a.json")
        monkeypatch.delattr(saved, "print")
    half = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["state"]
    assert (len(half["mean"]), half["step"]) == (4, 3)
    assert record(tmp_path / "a.json")["state"] == whole["state"]
    assert record(tmp_path / "b.json", steps=2)["state"]["step"] == 2
    assert record(tmp_path / "b.json")["state"] == whole["state"]
    assert record(tmp_path / "b.json", steps=2)["state"] == whole["state"]
    with pytest.raises(UserError, match="other settings"):
        record(tmp_path / "b.json", "--seed", "1")


def _stopping(lines: int) -> Any:
    said: list[Any] = []

    def say(*text: Any, **_: Any) -> None:
        said.append(text)
        if len(said) == lines:
            raise KeyboardInterrupt

    return say


# Tables


def test_the_report_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{seed}.json" for seed in range(3)]
    for seed, file in enumerate(files):
        record(file, "--seed", str(seed), steps=STEPS if seed < 2 else 2)
    labels = tmp_path / "labels.json"
    record(labels, "--labels", "random", steps=2)
    cells = [Recording.read(file).chosen(2, "1e9", 1.0, 1000.0) for file in files]
    other = Recording.read(labels).chosen(2, "1e9", 1.0, 1000.0)
    space = spaces["nb201"]
    assert len({space.key(cell) for cell in (*cells, other)}) == 4, "the seeds have to matter for this test"
    known = table(tmp_path / "nb201.csv", [cells[0], cells[1]])
    main(
        [
            "nasi-report",
            *map(str, [*files, labels]),
            "--table",
            str(known),
            "--steps",
            "2,5",
            "--nu",
            "1e9",
            "--mu",
            "1",
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    true, random = lines.index("Labels true, data true:"), lines.index("Labels random, data true:")
    assert lines[true + 2].startswith("| T | nu | mu | CIFAR-10 % | CIFAR-100 % | ImageNet16-120 % | seeds |")
    assert lines[true + 4] == "| 2 | 1e9 | 1 | 90.50 ± 0.71 | 70.50 ± 0.71 | 50.50 ± 0.71 | 3 | 1 |"
    assert lines[true + 5].startswith("| 5 | 1e9 | 1 |")
    assert lines[true + 5].split(" | ")[6] == "2", "two recordings are long enough"
    assert lines[random + 4] == "| 2 | 1e9 | 1 | none | none | none | 1 | 1 |"
    assert len(lines) == random + 6, "no recording with random labels has 5 steps"


def test_sizes_where_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{seed}.json" for seed in range(2)]
    for seed, file in enumerate(files):
        record(file, "--space", "nb1shot1_s2", "--seed", str(seed), steps=2)
    space = spaces["nb1shot1_s2"]
    plans = [space.plan(Recording.read(file).chosen(2, "1e9", 1.0, 1000.0)) for file in files]
    main(["nasi-report", *map(str, files), "--nu", "1e9", "--mu", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| T | nu | mu | million parameters | million multiply-accumulates | seeds |"
    wanted = [f"{(a + b) / 2e6:.2f} ± {abs(a - b) / 2**0.5 / 1e6:.2f}" for a, b in (
        [plan.params for plan in plans], [plan.flops for plan in plans]
    )]  # fmt: skip
    assert lines[4] == f"| 2 | 1e9 | 1 | {wanted[0]} | {wanted[1]} | 2 |"


def test_the_benchmark_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = Path(__file__).parents[3] / "shared" / "data" / "nb201.csv.gz"
    if not benchmark.exists():
        pytest.skip("NAS-Bench-201's accuracies are not beside the repository")
    record(tmp_path / "a.json")
    main(["nasi-report", str(tmp_path / "a.json"), "--table", str(benchmark)])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {STEPS} |")]
    assert len(rows) == 10
    assert all(10 <= float(row.split(" | ")[3]) < 95 for row in rows if row.endswith("| 1 | 0 |"))


# Mistakes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "a.npz"], "--out takes a name that ends with .json"),
        (["--labels", "some"], "'true' or 'random' for 'labels', not 'some'"),
        (["--data-kind", "some"], "'true' or 'random' for 'data', not 'some'"),
        (["--option", "nu=3"], "does not depend on nu: give that to the report"),
        (["--option", "nu"], "key=value"),
        (["--steps", "0"], "at least 1 step"),
        (["--space", "nb101"], "no relaxed network"),
    ],
)
def test_mistakes_of_a_recording(tmp_path: Path, words: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        record(tmp_path / "a.json", *words)


def test_mistakes_of_a_report(tmp_path: Path) -> None:
    one, other, foreign, s2 = (tmp_path / f"{name}.json" for name in ("one", "other", "foreign", "s2"))
    record(one, steps=2)
    record(other, "--option", "tau=2", steps=1)
    record(s2, "--space", "nb1shot1_s2", steps=1)
    foreign.write_text('{"state": {"settings": {}}}', encoding="utf-8")
    known = table(tmp_path / "nb201.csv", [("none",) * 6])

    def refused(*words: Any) -> str:
        with pytest.raises((UserError, DataError)) as caught:
            main(["nasi-report", *map(str, words), "--table", str(known)])
        return str(caught.value)

    assert "is not a recording of NASI" in refused(foreign)
    assert "differ in seed, labels and data alone" in refused(one, other)
    assert "same seed, labels and data" in refused(one, one)
    assert "are of nb1shot1_s2" in refused(s2)
    assert "has 2 steps: record more" in refused(one, "--steps", "3")
    assert "whole numbers from 1 such as 100,400, not '1e2'" in refused(one, "--steps", "1e2")
    assert "'mean', 'adaptive' or a number for 'nu', not 'some'" in refused(one, "--nu", "some")
    assert "a number for 'mu', not 'x'" in refused(one, "--mu", "x")
    state = json.loads(one.read_text(encoding="utf-8"))
    state["state"]["mean"] = state["state"]["mean"][:1]
    one.write_text(json.dumps(state), encoding="utf-8")
    assert "hardly begun" in refused(one)


def test_it_needs_torch_and_numpy_alone(fresh: Fresh) -> None:
    done = fresh.bare("from epochzero_papers.__main__ import reader\nreader('nasi-record')\n")
    assert done.code == 0, done.err
