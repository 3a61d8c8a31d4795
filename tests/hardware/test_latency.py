"""Latency: what is measured, what is kept, and that a limit always holds."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero.engine import parse
from epochzero.engine.space_networks import batch_for, budgeted
from epochzero.errors import UserError
from epochzero.hardware.latency import KEYS, PATIENCE, Latency, LatencyLimit, SwiftSpace, meter_of, timed
from epochzero.hardware.meters import OnnxMeter, TorchMeter, exported, quietly
from epochzero.hardware.timing import RUNS, WARM_UP, Meter, Timing, UnmeasurableError, summed_up
from epochzero.objectives.goals import LATENCY
from epochzero.registry import spaces
from epochzero.spaces.autoformer import Autoformer
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.study.clock import Clock
from epochzero.study.task import Task

SPACE = spaces["mlp"]
NB201 = spaces["nb201"]


def task_of(space: Any = SPACE, size: int = 2) -> Task:
    return Task(space, [parse("params")], batch_for(space, size=size))


class Counted:
    """Takes as many milliseconds as a function says, and counts how often it was asked."""

    instant = False
    name = "a stopwatch"

    def __init__(self, takes: Any) -> None:
        self.takes, self.asked = takes, 0
        self.facts = {"runtime": self.name}

    def __call__(self, arch: Any) -> Timing:
        self.asked += 1
        median = self.takes(arch)
        return Timing(median, 0.9 * median, 1.1 * median)


def convs(arch: Any) -> float:
    if arch == ("nor_conv_3x3",) * 6:
        raise UnmeasurableError("it is too slow to wait for")
    return 1.0 + sum("conv" in op for op in arch)


def test_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        found = summed_up(rng.exponential(size=RUNS).tolist())
        held += found.low <= np.log(2) <= found.high
    assert 0.95 <= held / 2000 <= 0.985


def test_interval_by_hand() -> None:
    assert summed_up(list(range(31, 0, -1))) == Timing(16, 10, 22)  # P(Bin(31, 1/2) < 10) = 0.0147, < 11 is 0.0354
    assert summed_up([3.0]) == Timing(3, 3, 3)
    assert summed_up([1.0, 2.0, 3.0, 4.0]) == Timing(2.5, 1, 4)
    assert str(Timing(2.0, 1.5, 2.25)) == "2 [1.5, 2.25] ms"
    assert str(Timing(2.0, 2.0, 2.0)) == "2 ms"


def test_torch_runs_the_network_so_often_and_gives_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool, tuple[int, ...], bool]] = []

    class Slow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.get_num_threads(), self.training, tuple(x.shape), torch.is_grad_enabled()))
            time.sleep(0.002)
            return x

    monkeypatch.setattr(Task, "module", lambda self, arch: Slow())
    before = torch.get_num_threads()
    meter = TorchMeter(task_of(), size=3, threads=before + 1)
    found = meter(SPACE.smallest())
    assert torch.get_num_threads() == before
    assert len(seen) == RUNS + WARM_UP
    assert set(seen) == {(before + 1, False, (3, 1, 28, 28), False)}
    assert 2.0 <= found.low <= found.median <= found.high
    assert f"{before + 1} threads, batch 3 of 1x28x28, 10 classes" in meter.name


def test_a_larger_network_takes_longer() -> None:
    meter = TorchMeter(task_of(), size=64, threads=1)
    small, large = meter(min(SPACE)), meter(max(SPACE))
    assert 0 < small.low <= small.median <= small.high
    assert small.low < large.high


def test_a_network_that_fails_is_no_end_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no way\nthrough")

    monkeypatch.setattr(Task, "module", lambda self, arch: Broken())
    with pytest.raises(UnmeasurableError, match=r"^torch cannot run it \(ValueError: no way\)$"):
        TorchMeter(task_of())(SPACE.smallest())


def test_onnxruntime_runs_the_same_network() -> None:
    ort = pytest.importorskip("onnxruntime")
    task = task_of()
    arch = SPACE.smallest()
    module, x = task.module(arch).eval(), torch.randn(1, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    session = ort.InferenceSession(exported(module, x), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(theirs, module(x).detach().numpy(), atol=1e-5)
    meter = OnnxMeter(task, threads=1)
    found = meter(arch)
    assert 0 < found.low <= found.median <= found.high
    assert meter.name.startswith("onnxruntime on ")


def test_onnxruntime_runs_a_network_that_is_a_constant() -> None:
    pytest.importorskip("onnxruntime")
    found = OnnxMeter(task_of(NB201), threads=1)(NB201.smallest())
    assert 0 < found.low <= found.median <= found.high


def test_attention_is_exported_by_the_quick_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one, which knows `transpose` and no `mT`."""
    ort = pytest.importorskip("onnxruntime")
    export, asked = torch.onnx.export, []

    def noted(*given: Any, dynamo: bool, **more: Any) -> Any:
        asked.append(dynamo)
        return export(*given, dynamo=dynamo, **more)

    monkeypatch.setattr(torch.onnx, "export", noted)
    task = task_of(Autoformer("former", widths=(192,), depths=(1,), heads=(3,), ratios=(3.5,)))
    module, x = task.module(task.space.smallest()).eval(), torch.randn(1, 3, 224, 224)
    session = ort.InferenceSession(exported(module, x), providers=["CPUExecutionProvider"])
    assert asked == [False]
    (theirs,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(theirs, module(x).detach().numpy(), atol=1e-5)


def test_onnxruntime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"needs onnxruntime: pip install 'epochzero\[onnx\]'"):
        meter_of("onnxruntime", task_of())


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    archs = [NB201.sample(Random(i)) for i in range(5)] + [("nor_conv_3x3",) * 6]
    answers = []
    for times in (6, 0):
        meter = Counted(convs)
        with Store.open(tmp_path / "run.db") as store:
            latency = Latency(meter, NB201)
            latency.keep(store, Clock())
            answers.append([latency.of(arch) for arch in (*archs, *archs)])
            assert meter.asked == times
            assert {row.proxy for row in store.all_scores()} == set(KEYS)
    assert answers[0] == answers[1]
    assert answers[0][5] == "it is too slow to wait for"


def test_its_time_has_a_part_of_the_clock() -> None:
    clock = Clock()
    latency = Latency(TorchMeter(task_of(), threads=1), SPACE)
    with Store.open(":memory:") as store:
        latency.keep(store, clock)
        latency.of(SPACE.smallest())
    assert clock.spent["latency"] > 0
    assert clock.spent["scoring"] == 0


def swift(limit: float, meter: Meter | None = None, budget: Budget = Budget()) -> SwiftSpace:
    task = task_of(NB201)
    return SwiftSpace(budgeted(NB201, budget, task.batch), LatencyLimit(Latency(meter or Counted(convs), NB201), limit))


@pytest.mark.parametrize("limit", [1.2, 2.5, 4.5])
def test_a_limit_holds_for_samples_mutations_and_neighbours(limit: float) -> None:
    """It is compared with the upper end, a tenth above the median."""
    space, rng = swift(limit, budget=Budget(max_params=800_000)), Random(0)
    found = [space.sample(rng) for _ in range(10)]
    found += [space.mutate(arch, rng) for arch in found]
    found += space.neighbours(found[0])
    assert found
    assert all(1.1 * convs(arch) <= limit and NB201.plan(arch).params <= 800_000 for arch in found)
    assert not space.fits(("nor_conv_3x3",) * 6)


def test_a_limit_that_even_the_smallest_misses_is_refused_at_once() -> None:
    meter = Counted(convs)
    with pytest.raises(UserError, match=r"smallest nb201 network takes 1 \[0.9, 1.1\] ms here.*at most 1 ms: raise"):
        swift(1.0, meter)
    assert meter.asked == 1


def test_a_space_that_cannot_be_timed_is_refused_at_once() -> None:
    def broken(arch: Any) -> float:
        raise UnmeasurableError("torch cannot run it (ValueError: no)")

    meter = Counted(broken)
    with pytest.raises(UserError, match=r"latency of nb201 networks cannot be measured: torch cannot run it"):
        swift(1.0, meter)
    assert meter.asked == 1 + PATIENCE


def test_a_smallest_network_that_cannot_be_timed_is_no_end_of_the_search() -> None:
    def constant(arch: Any) -> float:
        if arch == NB201.smallest():
            raise UnmeasurableError("it is a constant")
        return convs(arch)

    space, rng = swift(3.5, Counted(constant)), Random(0)
    assert space.fits(space.start) and not space.fits(NB201.smallest())
    assert all(1.1 * convs(space.sample(rng)) <= 3.5 for _ in range(10))
    with pytest.raises(UserError, match=r"None of 200 networks takes at most 0\.5 ms: raise --max-latency-ms"):
        swift(0.5, Counted(constant))


@pytest.mark.parametrize("limit", [0.0, -3.0, float("nan"), float("inf")])
def test_limits_that_are_none(limit: float) -> None:
    with pytest.raises(UserError, match=r"--max-latency-ms takes more than 0 milliseconds, not"):
        timed(task_of(NB201), limit=limit)


def test_a_task_gets_a_source_of_latencies_only_where_it_wants_one() -> None:
    task = task_of()
    assert timed(task) == (task, None)
    same, limit = timed(task, limit=3.0)
    assert same.sources == () and limit is not None and limit.milliseconds == 3.0
    wants, none = timed(replace(task, proxies=[LATENCY]))
    assert none is None and [source.name for source in wants.sources] == [limit.latency.name]
    ((scores, _),) = wants.sources[0].score(wants, [SPACE.smallest()])
    assert scores["latency"].value > 0


def table(path: Path, rows: int = 200) -> Path:
    """Networks with a column `phone`, empty for the third, and a text column."""
    rng = Random(5)
    archs = list(dict.fromkeys([NB201.smallest(), *(NB201.sample(rng) for _ in range(rows))]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", "phone", "word"])
        for i, arch in enumerate(archs):
            writer.writerow([NB201.text(arch), "" if i == 2 else convs(arch), "yes"])
    return path


def test_a_table_answers_for_its_networks(tmp_path: Path) -> None:
    file = table(tmp_path / "a:b.csv")
    meter = meter_of(f"table:{file}:phone", task_of(NB201))
    space, rng = swift(3.0, meter), Random(0)
    known = {NB201.parse(text) for text in meter.table.table.archs}  # type: ignore[attr-defined]
    found = {space.sample(rng) for _ in range(20)}
    assert all(convs(arch) <= 3.0 for arch in found)
    assert all(arch in known for arch in space)
    assert len(list(space)) == sum(convs(arch) <= 3.0 for arch in known) - (
        convs(NB201.parse(meter.table.table.archs[2])) <= 3.0  # type: ignore[attr-defined]
    )
    with pytest.raises(UserError, match=r"No nb201 network takes at most 0\.5 ms: the fastest takes 1 ms"):
        swift(0.5, meter)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "torhc",
            "There is no latency source 'torhc'. Did you mean 'torch'? Known: torch, onnxruntime, table:FILE:COLUMN, "
            "command:PROGRAM {onnx}.",
        ),
        ("table:FILE", "names no file and column: write table:FILE:COLUMN"),
        ("table:nowhere.csv:phone", "There is no file nowhere.csv"),
        ("table:FILE:phoen", "has no column 'phoen'. Did you mean 'phone'? It has phone, word."),
    ],
)
def test_meters_that_are_none(text: str, said: str, tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", 3)
    asked = text if text == "table:FILE" else text.replace("FILE", str(file))
    with pytest.raises(UserError) as error:
        meter_of(asked, task_of(NB201))
    assert said in str(error.value)


def test_batches_and_devices_that_there_are_none_of() -> None:
    with pytest.raises(UserError, match="batches of at least 1 sample, not 0"):
        meter_of("torch", task_of(), size=0)


@pytest.mark.parametrize("there", [True, False])
def test_exports_are_silent_with_and_without_a_private_function_of_torch(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setitem(vars(torch._C), "_jit_onnx_log", said.append)
    if not there:
        monkeypatch.delitem(vars(torch._C), "_jit_onnx_log")
    with quietly():
        vars(torch._C).get("_jit_onnx_log", list)("a graph")
    assert not said and vars(torch._C).get("_jit_onnx_log") == (said.append if there else None)


def test_a_module_of_several_inputs_is_timed_by_torch() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            logits: Tensor = self.head((self.words(ids) * mask[..., None]).mean(1))
            return logits

    rows = {"ids": torch.randint(9, (8, 5)), "mask": torch.ones(8, 5)}
    (row,) = ez.rank({"net": Masked()}, rows, torch.arange(8) % 2, proxy="params", seeds=1, latency="torch")
    assert isinstance(row.latency, Timing) and 0 < row.latency.low <= row.latency.median <= row.latency.high
    with pytest.raises(UserError, match="ONNX is made of networks with one input of real numbers"):
        ez.rank({"net": Masked()}, rows, torch.arange(8) % 2, proxy="params", seeds=1, latency="onnxruntime")
