"""The benchmark of speed: what it measures is what is scored, its floor is counted by hand, mistakes are sentences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list, score_population
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed import measure as speed
from epochzero.evaluate.speed.measure import Row, Settings, run_speed
from epochzero.evaluate.speed.report import begun, left_out, saver
from epochzero.evaluate.speed.roofline import Ceilings, Passes, ceilings, floor, passes
from epochzero.evaluate.speed.timing import Job, Timed, measure, measured
from epochzero.objectives.bundles import bundles, groups
from epochzero.registry import proxies, spaces
from epochzero.types import Score
from tests.command import epochzero, refusal
from tests.fresh import Fresh

BATCH = data.pink((3, 8, 8), size=4)
NB201 = spaces["nb201"]
RNG = Random(3)
ARCHS = tuple(NB201.text(NB201.sample(RNG)) for _ in range(4))
JOB = Job("alone", "nb201", ARCHS[:3], ARCHS[3:], "grad_norm,synflow", BATCH, 0, "cpu", 1, 8, 1, False, 60.0)
TINY = Settings(only="grad_norm,one batch", networks=3, alone_networks=3, batch_size=4, input_shape="3,8,8")


def scored(texts: tuple[str, ...], names: str) -> list[dict[str, Score]]:
    networks = [PlanNetwork(NB201.plan(NB201.parse(text), 10, (3, 8, 8))) for text in texts]
    return [one.scores for one in score_population(networks, parse_list(names), BATCH, 0, "never")]


def test_a_job_gives_the_scores_of_its_networks() -> None:
    found = measure(JOB)
    assert found.scores == scored(ARCHS[:3], "grad_norm,synflow")
    assert found.seconds > 0


def test_lockstep_gives_the_same_scores() -> None:
    for one, other in zip(measure(replace(JOB, way="lockstep", step=3)).scores, measure(JOB).scores, strict=True):
        assert {name: score.value for name, score in one.items()} == pytest.approx(
            {name: score.value for name, score in other.items()}, rel=0.01
        )


def test_a_process_of_its_own_gives_the_same_scores_and_counts_memory() -> None:
    found = measured(replace(JOB, archs=ARCHS[:2]))
    assert found.scores == scored(ARCHS[:2], "grad_norm,synflow")
    assert found.peak > 2**20


def test_worker_processes_give_the_same_scores() -> None:
    found = measure(replace(JOB, way="processes", step=3))
    assert found.scores == scored(ARCHS[:3], "grad_norm,synflow")


def test_no_population_is_begun_when_the_time_of_a_row_is_over() -> None:
    assert len(measure(replace(JOB, seconds=1e-9)).scores) == 1


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are measured in this process."""
    monkeypatch.setattr(speed, "measured", measure)


def test_every_row_comes_as_it_is_measured_and_is_saved(here: None, tmp_path: Path) -> None:
    rows: list[Row | str] = []
    out = tmp_path / "speed.json"
    report = run_speed(replace(TINY, ways="alone,lockstep"), rows.append, saver(out))
    wanted = [(name, way) for name in ("grad_norm", "one batch") for way in ("lockstep", "alone")]
    assert [(row.name, row.way) for row in rows if isinstance(row, Row)] == wanted
    assert report == json.loads(out.read_text(encoding="utf-8"))
    assert [(row["name"], row["way"]) for row in report["rows"]] == wanted
    for row in report["rows"]:
        assert row["networks"] == 3
        assert row["ms"] * row["per_second"] == pytest.approx(1000)
        assert row["times_floor"] == pytest.approx(row["ms"] / row["floor"]["ms"])
        assert row["floor"]["bytes"] < row["floor"]["bytes_op_by_op"]
    equal = report["equality"]
    assert [one["proxy"] for one in equal] == ["grad_norm", *bundles()["one batch"].split(",")]
    for one in equal:
        assert (one["networks"], one["one_alone"], one["spearman"]) == (3, 0, 1.0)
        assert one["worst_relative_error"] < 0.01
    assert report["settings"]["data_digest"] == data.pink((3, 8, 8), size=4).id
    assert {"device", "cpus", "torch", "python", "epochzero", "date"} <= report["machine"].keys()


def test_scores_that_differ_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"lockstep": [1.0, 2.0, 3.0], "alone": [1.0, 4.0, 3.0]}

    def fake(job: Job) -> Timed:
        scores = [{"grad_norm": Score(value)} for value in values[job.way]]
        return Timed(1.0, 0.0, scores if job.way == "alone" else [*scores[:2], {"grad_norm": Score.failed("no")}])

    monkeypatch.setattr(speed, "measured", fake)
    settings = replace(TINY, only="grad_norm", ways="alone,lockstep")
    (one,) = run_speed(settings, lambda row: None, lambda report: None)["equality"]
    assert (one["networks"], one["one_alone"], one["worst_relative_error"], one["spearman"]) == (2, 1, 0.5, 1.0)


def test_a_report_that_time_cut_short_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pieces of three measurements each: a row that was begun is measured again, all its ways in one run."""
    done: list[tuple[str, str]] = []
    clock = [0.0]

    def fake(job: Job) -> Timed:
        done.append((job.proxies, job.way))
        clock[0] += 10
        return Timed(2.0, 2.0**20, [{job.proxies: Score(float(number))} for number in range(2)])

    monkeypatch.setattr("epochzero.evaluate.speed.measure.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(speed, "measured", fake)
    monkeypatch.setattr(speed, "ceilings", lambda device: Ceilings(1e9, 1e9, None))
    settings = replace(TINY, only="grad_norm,snip,plain", ways="alone,lockstep", budget=25.0)
    out, table = tmp_path / "speed.json", tmp_path / "speed.md"
    before: Any = None
    for _ in range(2):
        before = begun(out)
        report = run_speed(settings, lambda row: None, saver(out, table, before), before)
    both = ("lockstep", "alone")
    again = [("snip", "lockstep"), *(("snip", way) for way in both), ("plain", "lockstep")]
    assert done == [*(("grad_norm", way) for way in both), *again]
    assert left_out(before) == ["left out, the budget was spent: snip (alone), plain (lockstep), plain (alone)"]
    run_speed(settings, lambda row: None, saver(out, table, report), report)
    report = json.loads(out.read_text(encoding="utf-8"))
    assert [(row["name"], row["way"]) for row in report["rows"]] == [
        (name, way) for name in ("grad_norm", "snip", "plain") for way in both
    ]
    assert [one["row"] for one in report["equality"]] == ["grad_norm", "snip", "plain"]
    assert (report["left_out"], len(report["resumed"]), report["seconds"]) == ([], 2, 80.0)
    lines = table.read_text(encoding="utf-8").splitlines()
    assert "nb201, batches of 4 of pink, " in lines[0] and [line.count("|") for line in lines[2:]] == [12] * 5
    cells = [cell.strip() for cell in lines[4].split("|")[1:-1]]
    assert cells[:6] == ["grad_norm", "1,000", "1,000", "3", "", "1"] and cells[-2:] == ["0e+00", "1.0000"]

    with pytest.raises(UserError, match=r"^The report at --out has seed 0, and this run 1: give another --out\.$"):
        run_speed(replace(settings, seed=1), lambda row: None, lambda report: None, report)


def test_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    assert begun(tmp_path / "none.json") is None
    assert "--resume continues the report at --out" in refusal("bench-speed", "--resume")
    for text in ("no JSON", "[1]", '{"rows": []}'):
        other = tmp_path / "other.json"
        other.write_text(text)
        assert "other.json' is not a report of speed" in refusal("bench-speed", "--resume", "--out", other)


def test_what_the_budget_leaves_out_is_said(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr("epochzero.evaluate.speed.measure.time.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(speed, "measured", lambda job: Timed(1.0, 0.0, [{"params": Score(1.0)}]))
    monkeypatch.setattr(speed, "ceilings", lambda device: Ceilings(1.0, 1.0, None))
    settings = replace(TINY, only="params,flops", ways="alone", budget=15.0)
    report = run_speed(settings, lambda row: None, lambda report: None)
    assert [row["name"] for row in report["rows"]] == ["params"]
    assert report["left_out"] == [{"name": "flops", "way": "alone", "why": "the budget was spent"}]
    assert left_out(report) == ["left out, the budget was spent: flops (alone)"]


def test_too_little_memory_for_one_network_is_a_sentence_and_the_rest_goes_on(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(job: Job) -> Timed:
        if job.proxies == "grad_norm":
            raise MachineError("Out of memory on one network.")
        return measure(job)

    monkeypatch.setattr(speed, "measured", fake)
    said: list[Any] = []
    settings = replace(TINY, only="grad_norm,params", ways="alone")
    report = run_speed(settings, said.append, lambda report: None)
    assert said[0] == "grad_norm, alone: Out of memory on one network."
    assert [row["name"] for row in report["rows"]] == ["params"]
    with pytest.raises(MachineError, match=r"Nothing was measured: Out of memory on one network\."):
        run_speed(replace(settings, only="grad_norm"), said.append, lambda report: None)


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        ("params", Passes(0, 0, 0, 0)),
        ("synflow", Passes(1, 1, 1, 1)),
        ("grad_norm", Passes(1, 1, 4, 4)),
        ("grad_norm,snip,plain,fisher,l2_norm,jacov,naswot", Passes(1, 2, 4, 8)),
        ("zico(batches=4)", Passes(4, 4, 16, 16)),
        ("ntk_cond,ntk_trace", Passes(1, 4, 4, 16)),
    ],
)
def test_passes_are_counted_once_each(names: str, counted: Passes) -> None:
    assert passes(parse_list(names), BATCH) == counted


def test_the_floor_by_hand() -> None:
    """Of the smallest cell nothing is left but the stem, two reductions and the head."""
    plan = NB201.plan(NB201.smallest(), 10, (3, 8, 8))
    found = floor([plan], parse_list("grad_norm"), BATCH, Ceilings(1e9, 1e9, 1e12))
    kept = 16 * 64 + 2 * 32 * 16 + 16 * 16 + 32 * 16 + 2 * 64 * 4 + 32 * 4 + 64 * 4 + 64 + 10
    assert found.flops == 2 * plan.flops * (4 + 2 * 4)
    assert found.bytes == 4 * kept * (2 * 4 + 4 * 4) + 4 * plan.params * (1 + 1 + 2)
    assert found.ms == pytest.approx(1e3 * max(found.bytes, found.flops) / 1e9)
    assert found.ms_tf32 == pytest.approx(1e3 * found.bytes / 1e9)
    assert floor([plan], parse_list("params"), BATCH, Ceilings(1e9, 1e9, None)).ms == 0


def test_ceilings_are_those_of_a_machine() -> None:
    found = ceilings("cpu")
    assert 1e8 < found.bytes_per_second < 1e13
    assert 1e8 < found.flops < 1e14
    assert found.flops_tf32 is None


def test_bundles_hold_what_they_say() -> None:
    quick, most = (set(bundles()[name].split(",")) for name in ("all quick", "all but kernels"))
    assert quick < most < set(proxies)
    assert set(proxies) - most == {"hnas", "nasi_trace_sum", "ntk_cond", "ntk_trace"}
    assert set(groups(None)) == {*bundles(), *proxies} - {"all"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"only": "naswt"}, "No proxy is called 'naswt'. Did you mean 'naswot'?"),
        ({"only": " , "}, "--only names nothing"),
        ({"space": "nb21"}, "No space is called 'nb21'. Did you mean 'nb201'?"),
        ({"ways": "lockstp"}, "There is no way 'lockstp'. Did you mean 'lockstep'?"),
        ({"networks": 0}, "--networks is 0; it has to be at least 1."),
        ({"input_shape": "3,x"}, "--input-shape takes whole numbers"),
        ({"data": "nothing.npz"}, "There is no file or folder nothing.npz"),
        ({"device": "cuda", "ways": "alone"}, "The device 'cuda' cannot be used here"),
    ],
)
def test_mistakes_are_sentences(changed: dict[str, Any], sentence: str) -> None:
    if changed.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError) as refused:
        run_speed(replace(TINY, **changed), lambda row: None, lambda report: None)
    assert str(refused.value).startswith(sentence)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu_is_a_sentence_and_exit_code_2() -> None:
    assert refusal("bench-speed", "--device", "cuda").startswith("The device 'cuda' cannot be used here (")


def test_the_command_prints_a_table_or_json(here: None) -> None:
    asked = ("bench-speed", "--only", "params", "--ways", "alone", "--networks", 2, "--input-shape", "3,8,8")
    ran = epochzero(*asked)
    assert ran.code == 0 and "params" in ran.out and "alone" in ran.out
    found = epochzero(*asked, "--json").json
    assert [(row["name"], row["networks"]) for row in found["rows"]] == [("params", 2)]


def test_it_runs_with_torch_and_numpy_alone(tmp_path: Path, fresh: Fresh) -> None:
    """As a module, in a process that has nothing else; first with a mistake, which is a sentence."""
    program = (
        "import sys\n"
        "from epochzero.evaluate.speed import measure, timing\n"
        "measure.measured = timing.measure\n"
        "from epochzero.bare import command\n"
        "from epochzero.bare.__main__ import main\n"
        "try:\n"
        "    command(lambda: main(['speed', '--only', 'naswt']))\n"
        "except SystemExit as stop:\n"
        "    assert stop.code == 2, stop.code\n"
        "else:\n"
        "    raise AssertionError('naswt was measured')\n"
        "command(lambda: main(['speed', *sys.argv[1:]]))\n"
    )
    tiny = ["--only", "synflow", "--ways", "alone", "--networks", "1", "--input-shape", "3,8,8", "--device", "cpu"]
    out = tmp_path / "speed.json"
    done = fresh.bare(program, *tiny, "--out", out)
    assert done.code == 0, done.err
    assert done.out.startswith("synflow          alone")
    assert json.loads(out.read_text(encoding="utf-8"))["rows"][0]["networks"] == 1
    assert done.err.startswith("error: No proxy is called 'naswt'. Did you mean 'naswot'?")
