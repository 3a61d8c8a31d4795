"""The suite of speed: every space in every way, ratios to the best way, resumed space by space."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.precision import set_precision
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed import mbconv, suite
from epochzero.evaluate.speed import measure as speed
from epochzero.evaluate.speed.isolated import Isolated
from epochzero.evaluate.speed.measure import WAYS, Row, Settings
from epochzero.evaluate.speed.profile import Cost, Profile, as_text, profiled, union
from epochzero.evaluate.speed.roofline import Ceilings
from epochzero.evaluate.speed.suite import ON_CPU, ON_GPU, Size, as_markdown, lines, run_suite
from epochzero.evaluate.speed.timing import Job, Timed, Way, measure
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.types import Score
from tests.command import epochzero

BATCH = data.pink((3, 8, 8), size=4)
NB201 = spaces["nb201"]
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
    left = [f"{space} ({bundle})" for bundle in suite.ONLY.split(",") for space in ("nb201", "resnet")]
    assert (jobs, report["left_out"], as_markdown(report)) == ([], left, "")


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
    own: dict[str, Any] = {"mbconv": mbconv.PLANS, "mbconv_modules": mbconv.MODULES}
    for name, size in sizes.items():
        space, wanted = own.get(name) or spaces[name], shape(size.shape)
        if space is not mbconv.MODULES:
            assert space.plan(space.sample(Random(0)), 10, wanted).input_shape == wanted


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured for once, in this process."""
    monkeypatch.setattr(speed, "measured", measure)
    monkeypatch.setattr("epochzero.evaluate.speed.timing.SETTLED", 0.0)
    options = ("--only", "params", "--ways", "auto,alone", "--networks", 2)
    ran = epochzero("bench-speed", "--suite", "nats_sss", *options)
    assert ran.code == 0 and "| nats_sss (8) | params |" in ran.out
    made: Any = epochzero("bench-speed", "--suite", "nats_sss", *options, "--json").json
    assert [row["way"] for row in made["spaces"]["nats_sss"]["rows"]] == ["auto", "alone"]


def test_on_a_gpu_rows_come_by_phases_and_one_that_fails_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a process that can be ended, which is pretended."""
    done: list[tuple[str, str, str, float]] = []

    class Fake:
        def __init__(self, device: str) -> None:
            assert device == "cpu"

        def run(self, function: Any, job: Job, seconds: float) -> Any:
            done.append((function.__name__, job.space, job.way, seconds))
            if job.way == "lockstep":
                raise MachineError("The measurement took more than 12 s.")
            if function is not measure:
                return Profile(1, 2.0, 1.0, 3.0, (Cost("conv", 1.0, 1.0),), ())
            return Timed(2.0, 0.0, [dict.fromkeys(job.proxies.split(","), Score(1.0))])

        def refresh(self) -> None:
            done.append(("refresh", "", "", 0.0))

        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(suite, "Isolated", Fake)
    monkeypatch.setattr(suite, "apart", lambda settings: True)
    monkeypatch.setattr(suite, "ON_GPU", dict.fromkeys(("mbconv", "mbconv_modules"), Size(2, "3,8,8", 4, 2)))
    monkeypatch.setattr(suite, "PROFILES", (("mbconv", "alone"), ("darts", "alone")))
    monkeypatch.setattr(spaces, "_members", dict(spaces._members))
    shown: list[Row | str] = []
    report = run_suite("all", Settings(budget=1e6), shown.append, profile=60.0)
    ways = {"mbconv": ("auto", "alone", "tape"), "mbconv_modules": ("auto", "alone")}
    first = [("measure", space, way, 12.0) for space in ways for way in ways[space]]
    assert done[: len(first) + 1] == [*first, ("profiled", "mbconv", "alone", pytest.approx(45, abs=40))]
    four = [("measure", space, way, 12.0) for space in ways for way in ("auto", "alone")]
    crew = [("measure", space, "processes", 45.0) for _ in ("one batch", "dextr") for space in ways]
    assert done[len(first) + 1 :][: len(first) + len(four)] == [*first, *four]
    assert done[2 * len(first) + len(four) + 1 :][: len(crew) + 1] == [*crew, ("refresh", "", "", 0.0)]
    assert report["profiles"]["mbconv, alone"]["kernels"] == ({"name": "conv", "calls": 1.0, "ms": 1.0},)
    assert {(row["name"], row["way"]) for row in report["spaces"]["mbconv_modules"]["rows"]} == {
        (bundle, way)
        for bundle, more in (("one batch", ("tf32", "channels_last", "tuned")), ("four batches", ()), ("dextr", ()))
        for way in ("auto", "alone", "processes", *more)
    }
    assert "one batch, lockstep: The measurement took more than 12 s." in shown
    assert "| mbconv (2) | four batches | 2,000 | 2,000 |  | 2,000 | 2,000 |" in as_markdown(report)


def nothing(job: Job) -> Any:
    """The process of the next test: it answers, fails, hangs or dies, as the job's space says."""
    if job.space == "fails":
        raise RuntimeError("no kernel\nat all")
    if job.space == "hangs":
        time.sleep(60)
    if job.space == "dies":
        os._exit(3)
    return job.space


def test_a_process_that_fails_hangs_or_dies_is_replaced() -> None:
    job = Job("alone", "good", (), (), "", data.pink((3, 8, 8), size=4), 0, "cpu", 1, 1, 1, False, 1.0)
    with Isolated("cpu") as isolated:
        found = []
        for space in ("good", "fails", "hangs", "dies"):
            try:
                found.append(isolated.run(nothing, replace(job, space=space), 0.5 if space == "hangs" else 60.0))
            except MachineError as error:
                found.append(str(error))
    hung, died = "The measurement took more than 0 s.", "The process ended with exit code 3."
    assert found == ["good", "RuntimeError: no kernel", hung, died]


def test_a_profile_counts_what_runs() -> None:
    job = Job("tape", "nb201", (NB201.text(NB201.smallest()),), (), "grad_norm", BATCH, 0, "cpu", 1, 1, 1, False, 1.0)
    found = profiled(job)
    assert found.networks == 1 and found.busy > 0 and found.launches > 10
    assert any("conv" in cost.name and cost.calls >= 3 for cost in found.kernels)
    assert found.functions and all(one.ms >= other.ms for one, other in pairwise(found.functions))
    text = as_text("nb201, tape", found)
    assert text.startswith("profile of nb201, tape: ") and text.count("\n") == len(found.kernels) + len(found.functions)


def test_intervals_are_counted_once_where_they_overlap() -> None:
    assert union([(5, 9), (0, 2), (1, 3), (6, 7), (9, 10)]) == 8
    assert union([]) == 0


def test_both_spaces_of_inverted_bottlenecks_have_the_same_networks() -> None:
    rng = Random(0)
    for _ in range(5):
        arch = mbconv.PLANS.sample(rng)
        assert mbconv.MODULES.parse(mbconv.PLANS.text(arch)) == arch
        plan = mbconv.PLANS.plan(arch, 5, (3, 8, 8))
        module = ModuleNetwork(mbconv.MODULES.build(arch, 5, (3, 8, 8)), replace(BATCH, num_classes=5))
        assert (module.params, module.flops) == (plan.params, plan.flops)
        assert [module.weights[name].shape for name in module.layer_weights] == [
            plan.weights[name].shape for name in plan.layer_weights
        ]
    for text in ("k3e3", "k3e3/" * 7 + "k4e3"):
        with pytest.raises(UserError, match="A network of mbconv is eight layers such as k3e4"):
            mbconv.PLANS.parse(text)


@pytest.mark.parametrize("way", ["tape", "tf32", "channels_last", "tuned"])
def test_ways_on_request_give_the_same_scores(way: Way) -> None:
    rng, state = Random(1), (torch.backends.cudnn.benchmark, set(network.CHANNELS_LAST_ON))
    texts = tuple(NB201.text(NB201.sample(rng)) for _ in range(2))
    job = Job("alone", "nb201", texts, (), "grad_norm,naswot,dextr", BATCH, 0, "cpu", 1, 1, 1, False, 60.0)
    for one, other in zip(measure(replace(job, way=way)).scores, measure(job).scores, strict=True):
        assert {name: score.value for name, score in one.items()} == pytest.approx(
            {name: score.value for name, score in other.items()}, rel=1e-3
        )
    set_precision(False)
    assert (torch.backends.cudnn.benchmark, network.CHANNELS_LAST_ON) == state
