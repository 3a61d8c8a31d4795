"""The suite of speed: every space in every way, ratios to the best way, resumed space by space."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from epochzero.errors import UserError
from epochzero.evaluate.speed import measure as speed
from epochzero.evaluate.speed import suite
from epochzero.evaluate.speed.measure import WAYS, Row, Settings
from epochzero.evaluate.speed.roofline import Ceilings
from epochzero.evaluate.speed.suite import ON_CPU, ON_GPU, as_markdown, lines, run_suite
from epochzero.evaluate.speed.timing import Job, Timed, measure
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.types import Score
from tests.command import epochzero

TINY = Settings(only="grad_norm", networks=2, alone_networks=2)
SECONDS = {"auto": 2.2, "lockstep": 4.0, "alone": 3.0, "processes": 2.0}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Measurements that take no time, by space and way."""
    done: list[tuple[str, str]] = []

    def fake(job: Job) -> Timed:
        done.append((job.space, job.way))
        scores = [{job.proxies: Score(float(i))} for i in range(2)]
        return Timed(SECONDS[job.way], 0.0, scores)

    monkeypatch.setattr(speed, "measured", fake)
    monkeypatch.setattr(speed, "ceilings", lambda device: Ceilings(1e9, 1e9, None))
    return done


def test_every_space_in_every_way(jobs: list[tuple[str, str]], tmp_path: Path) -> None:
    out, table = tmp_path / "suite.json", tmp_path / "suite.md"
    shown: list[Row | str] = []
    report = run_suite("nb201,resnet", TINY, shown.append, out=out, table=table)
    assert jobs == [(space, way) for space in ("nb201", "resnet") for way in WAYS]
    assert json.loads(out.read_text(encoding="utf-8")) == report
    one, other = lines(report)
    assert (one.space, one.samples, one.bundle, one.spearman) == ("nb201", ON_CPU["nb201"].samples, "grad_norm", 1.0)
    assert one.ms == other.ms == {way: 500 * seconds for way, seconds in SECONDS.items()}
    assert one.ratio == pytest.approx(1.1)
    assert one.floor is not None and one.times == pytest.approx(1000 / one.floor)
    text = table.read_text(encoding="utf-8")
    assert text == as_markdown(report)
    assert "| nb201 (8) | grad_norm | 1,100 | 1,500 | 2,000 | 1,000 | 1.1 |" in text
    assert len([row for row in shown if isinstance(row, Row)]) == 8


def test_it_resumes_where_it_stopped(jobs: list[tuple[str, str]], tmp_path: Path) -> None:
    out = tmp_path / "suite.json"
    run_suite("nb201", TINY, lambda row: None, out=out)
    report = run_suite("nb201,resnet", TINY, lambda row: None, out=out, resume=True)
    assert [space for space, _ in jobs] == ["nb201"] * 4 + ["resnet"] * 4
    assert list(report["spaces"]) == ["nb201", "resnet"]


def test_spaces_for_which_no_time_is_left_are_named(jobs: list[tuple[str, str]]) -> None:
    report = run_suite("nb201,resnet", Settings(budget=0.0), lambda row: None)
    assert (jobs, report["left_out"], as_markdown(report)) == ([], ["nb201", "resnet"], "")


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"kind": "speed"}', '{"kind": "suite"}'])
def test_other_files_are_left_alone(tmp_path: Path, content: str) -> None:
    out = tmp_path / "other.json"
    out.write_text(content)
    with pytest.raises(UserError, match=r"other\.json' is not a report of a suite"):
        run_suite("nb201", TINY, lambda row: None, out=out, resume=True)
    assert out.read_text() == content


def test_unknown_spaces_are_refused() -> None:
    with pytest.raises(UserError, match="The suite has no space 'nb21' for this device"):
        run_suite("nb21", TINY, lambda row: None)


@pytest.mark.parametrize("sizes", [ON_CPU, ON_GPU])
def test_its_spaces_take_images_of_these_shapes(sizes: dict[str, suite.Size]) -> None:
    for name, (_, text) in sizes.items():
        space = spaces[name]
        assert space.plan(space.sample(Random(0)), 10, shape(text)).input_shape == shape(text)


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured for once, in this process."""
    monkeypatch.setattr(speed, "measured", measure)
    monkeypatch.setattr("epochzero.evaluate.speed.timing.SETTLED", 0.0)
    options = ("--only", "params", "--ways", "auto,alone", "--networks", 2)
    ran = epochzero("bench-speed", "--suite", "nats_sss", *options)
    assert ran.code == 0 and "| nats_sss (8) | params |" in ran.out
    made: Any = epochzero("bench-speed", "--suite", "nats_sss", *options, "--json").json
    assert [row["way"] for row in made["spaces"]["nats_sss"]["rows"]] == ["auto", "alone"]
