"""`epochzero search` for several things at once, under latency limits, and inside one network."""

from __future__ import annotations

import csv
import ctypes
import io
import json
import logging
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import epochzero as ez
from epochzero.cli.console import number
from epochzero.engine import parse
from epochzero.hardware.latency import KEYS
from epochzero.hardware.meters import TorchMeter
from epochzero.hardware.timing import Timing
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.methods.dominance import first_front
from epochzero.study.task import Task
from tests.command import epochzero, refusal

FEW = ["--batch-size", "2"]
TWO = ["search", "--objectives", "l2_norm,-flops", "--option", "population=8", *FEW]
SPACE = spaces["nb201"]


def milliseconds(arch: Any) -> float:
    return 1.0 + sum({"nor_conv_3x3": 3.0, "nor_conv_1x1": 1.0}.get(op, 0.0) for op in arch)


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Networks take as long as their convolutions say; the texts of all that were measured."""
    asked: list[str] = []

    def measure(meter: TorchMeter, arch: Any) -> Timing:
        asked.append(SPACE.text(arch))
        return Timing(milliseconds(arch), milliseconds(arch) - 0.1, milliseconds(arch) + 0.25)

    monkeypatch.setattr(TorchMeter, "__call__", measure)
    return asked


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Latencies of 400 networks."""
    path = tmp_path_factory.mktemp("tables") / "phones.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch_str", "phone"])
        writer.writerows([SPACE.text(arch), milliseconds(arch)] for arch in Random(0).sample(list(SPACE), 400))
    return path


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("front")
    ran = epochzero(*TWO, "--budget", 40, "--store", folder / "run.db", "--out", folder / "out", "--json")
    assert "front of" in ran.err
    return folder, ran.json


def test_the_front_is_that_of_everything_in_the_store(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = searched
    with Store.open(folder / "run.db") as store:
        (run,) = store.runs()
        (steps,) = run.history().values()
        assert run.settings["proxy"] == "l2_norm,-flops" and run.state == "finished"
    scores = {step.arch: [step.scores[parse(name).key][0].value for name in ("l2_norm", "flops")] for step in steps}
    assert len(scores) == found["evaluated"] == 40
    rows = np.array(list(scores.values())) * [1, -1]
    best = {list(scores)[i] for i in first_front(rows)}
    assert {one["arch"] for one in found["front"]} == best
    for one in found["front"]:
        plan = SPACE.plan(SPACE.parse(one["arch"]))
        assert list(one["scores"].values()) == scores[one["arch"]]
        assert (one["params"], one["flops"]) == (plan.params, plan.flops) and one["scores"]["flops"] == plan.flops
    assert found["objectives"] == [{"name": "l2_norm", "better": "higher"}, {"name": "flops", "better": "lower"}]
    assert sum(found["clock"].values()) == pytest.approx(found["seconds"])


def test_the_front_is_written_and_drawn(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = searched
    out = folder / "out"
    assert {path.name for path in out.iterdir()} == {"front.json", "front.csv", "front.png", "front.svg"}
    assert json.loads((out / "front.json").read_text()) == found
    with (out / "front.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arch"] for row in rows] == [one["arch"] for one in found["front"]]
    assert [float(row["flops"]) for row in rows] == [one["flops"] for one in found["front"]]
    assert ElementTree.parse(out / "front.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_front_is_extended_from_its_store(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, small = searched
    large = epochzero(*TWO, "--budget", 60, "--store", folder / "run.db", "--json").json
    fresh = epochzero(*TWO, "--budget", 60, "--json").json
    assert large["front"] == fresh["front"]
    with Store.open(folder / "run.db") as store:
        first, second = (next(iter(run.history().values())) for run in store.runs())
    assert [step.arch for step in second[:40]] == [step.arch for step in first]
    again = epochzero(*TWO, "--budget", 40, "--store", folder / "run.db", "--json").json
    assert again["front"] == small["front"]


def test_a_front_in_words() -> None:
    ran = epochzero(*TWO, "--budget", 16)
    assert ran.code == 0
    head, *rows = ran.out.splitlines()
    assert head.split() == ["l2_norm", "↑", "flops", "↓", "params", "arch"]
    assert rows and all("nor_conv" in row or "~0|" in row for row in rows)
    assert "of 16 networks are beaten by no other" in ran.err


def test_a_limit_in_milliseconds_always_holds(stopwatch: list[str], tmp_path: Path) -> None:
    """4.3 ms: with the upper end a quarter above the median, 4 ms are within and 5 are not."""
    command = ["search", "--proxy", "l2_norm", "--max-latency-ms", "4.3", "--max-params", "1M", "--budget", 30, *FEW]
    command += ["--store", tmp_path / "run.db", "--winner-scores", "none"]
    found = epochzero(*command, "--json").json
    with Store.open(tmp_path / "run.db") as store:
        looked = next(run for run in store.runs() if run.kind == "search")
        assert looked.settings["max_latency_ms"] == 4.3
        ((_, steps),) = looked.history().items()
    assert len(steps) == 30
    assert all(milliseconds(SPACE.parse(step.arch)) <= 4 for step in steps)
    over = [text for text in stopwatch if milliseconds(SPACE.parse(text)) > 4]
    assert over and len(stopwatch) == len(set(stopwatch)), "those over the limit were measured, and once"
    assert found["latency"]["limit_ms"] == 4.3 and found["latency"]["over"] == len(over)
    assert found["latency"]["best"] == pytest.approx(
        dict(zip(("median_ms", "low_ms", "high_ms"), _timing(found["best"]["arch"]), strict=True))
    )
    stopwatch.clear()
    again = epochzero(*command, "--json").json
    assert again["best"] == found["best"] and not stopwatch, "nothing is measured a second time"


def _timing(text: str) -> tuple[float, float, float]:
    median = milliseconds(SPACE.parse(text))
    return median, median - 0.1, median + 0.25


def test_latency_from_a_table_as_a_limit_and_as_an_objective(phones: Path) -> None:
    table = ["--latency", f"table:{phones}:phone"]
    found = epochzero(
        "search", "--objectives", "params,latency", *table, "--max-latency-ms", 6, "--budget", 60, *FEW, "--json"
    )
    front = found.json["front"]
    assert all(one["scores"]["latency"] == milliseconds(SPACE.parse(one["arch"])) <= 6 for one in front)
    assert len({one["scores"]["latency"] for one in front}) > 1
    words = epochzero("search", "--proxy", "params", *table, "--max-latency-ms", 6, "--budget", 20, *FEW)
    assert re.search(r"^latency \d+ ms, by phones\.csv [0-9a-f]{12} phone$", words.out, re.MULTILINE)


@pytest.mark.parametrize("goal", ["latency", "-flops"])
def test_a_front_says_how_its_latencies_were_measured(goal: str, stopwatch: list[str], tmp_path: Path) -> None:
    limit = ["--max-latency-ms", 50] if goal == "-flops" else []
    search = ["search", "--objectives", f"params,{goal}", *limit, "--latency-batch", 3, "--threads", 1, *FEW]
    ran = epochzero(*search, "--budget", 8, "--store", tmp_path / "run.db", "--out", tmp_path)
    found = json.loads((tmp_path / "front.json").read_text())
    how = found["latency"]
    assert how["told_by"].startswith("torch on ") and how["hardware"] in how["told_by"]
    assert (how["runtime"], how["threads"], how["batch"], how["input_shape"]) == ("torch", 1, 3, [3, 32, 32])
    assert f"\nlatency: {how['told_by']}; milliseconds, medians of 31 runs with 95 % intervals\n" in ran.out
    timings = [_timing(one["arch"]) for one in found["front"]]
    assert [tuple(one["latency"].values()) for one in found["front"]] == timings
    with (tmp_path / "front.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [tuple(float(row[key]) for key in KEYS) for row in rows] == timings
    assert {row["latency_told_by"] for row in rows} == {how["told_by"]}
    assert all(f"{number(median)} [{number(low)}, {number(high)}]" in ran.out for median, low, high in timings)
    stopwatch.clear()
    again = epochzero(*search, "--budget", 8, "--store", tmp_path / "run.db", "--json").json
    assert again["front"] == found["front"] and not stopwatch, "intervals come from the store too"


def test_known_accuracies_of_a_front(tmp_path: Path) -> None:
    """Of every other network of a front, in four columns, three of which are printed."""
    search = [*TWO, "--budget", 16]
    archs = [one["arch"] for one in epochzero(*search, "--json").json["front"]]
    keys = {SPACE.key(SPACE.parse(arch)) for arch in archs[1::2]}
    held = [arch for arch in archs if SPACE.key(SPACE.parse(arch)) not in keys]
    assert 0 < len(held) < len(archs)
    table = tmp_path / "known.csv"
    lines = [f"{arch},{90 + i},{80 + i},{70 + i},{60 + i},7" for i, arch in enumerate(held)]
    table.write_text("\n".join(["arch_str,a_test,b_test,c_test,d_test,size", *lines]))
    ran = epochzero(*search, "--table", table, "--out", tmp_path)
    found = json.loads((tmp_path / "front.json").read_text())
    known = {one["arch"]: one["known"] for one in found["front"]}
    assert known[held[0]] == {"a_test": 90, "b_test": 80, "c_test": 70, "d_test": 60}
    assert [arch for arch in archs if known[arch] is not None] == held
    assert found["not_held"] == len(archs) - len(held) and found["table"].startswith("known.csv ")
    assert ran.out.splitlines()[0].split()[-4:] == ["a_test", "b_test", "c_test", "arch"]
    told = f"accuracies: {found['table']}, which holds {len(held)} of {len(archs)} networks; 3 of 4 columns are shown"
    assert told in ran.out
    with (tmp_path / "front.csv").open(newline="") as file:
        assert [row["d_test"] for row in csv.DictReader(file) if row["arch"] == held[0]] == ["60.0"]


def test_latency_is_measured_for_an_objective(stopwatch: list[str]) -> None:
    found = ez.search(objectives="params,latency", budget=24, max_latency_ms=9.0, options={"population": 8})
    assert found.front is not None
    assert all(values[1] <= 9 for values in found.values.tolist())
    assert found.clock.spent["latency"] > 0 and len(stopwatch) == len(set(stopwatch))


def test_a_limit_measured_by_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    limit = ["--max-latency-ms", 1e4, "--latency", "onnxruntime", "--threads", 1]
    found = epochzero("search", "--proxy", "params", *limit, "--budget", 1, "--winner-scores", "none", *FEW, "--json")
    told = found.json["latency"]
    assert told["told_by"].startswith("onnxruntime on ") and (told["asked"], told["without"]) == (2, 0)
    assert 0 < told["best"]["low_ms"] <= told["best"]["median_ms"] <= told["best"]["high_ms"] < 1e4


class Turned(torch.nn.Module):
    """Has an operation that PyTorch's older exporter does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mT.flatten(1)


def test_an_exporter_that_fails_keeps_standard_output_clean(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The older exporter is PyTorch's; in place of the newer, which takes seconds to load, there is a quick one."""
    pytest.importorskip("onnxruntime")
    onnx, older = pytest.importorskip("onnx"), torch.onnx.export

    def export(module: torch.nn.Module, x: Any, file: Any = None, *, dynamo: bool, **more: Any) -> Any:
        if not dynamo:
            return older(module, x, file, dynamo=False)
        logging.getLogger("torch.onnx._internal").warning("something is not installed")
        older(torch.nn.Flatten(), x, file := io.BytesIO(), dynamo=False)  # type: ignore[arg-type]
        return SimpleNamespace(model_proto=onnx.load_from_string(file.getvalue()))

    monkeypatch.setattr(torch.onnx, "export", export)
    monkeypatch.setattr(Task, "module", lambda self, arch: Turned())
    search = ["search", "--space", "mlp", "--objectives", "params,latency", "--latency", "onnxruntime", "--budget", 1]
    ran = epochzero(*search, *FEW, "--json")
    assert ran.json["front"][0]["scores"]["latency"] > 0 and "not installed" not in caplog.text
    ctypes.CDLL(None).fflush(None)  # what C++ printed
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--objectives", "dextr"], "at least two different objectives"),
        (["--objectives", "dextr,-flps"], "No proxy is called 'flps'. Did you mean 'flops'?"),
        (["--method", "pareto"], "pareto needs at least two objectives"),
        (["--objectives", "dextr,-flops", "--method", "evolution"], "evolution goes by one objective"),
        (["--objectives", "dextr,-flops", "--method", "nasi"], "so --objectives means nothing"),
        (["--objectives", "dextr,-flops", "--top", "3"], "--top is about one winner, and --objectives gives a whole"),
        (["--objectives", "dextr,-flops", "--auxiliary"], "leave out --auxiliary."),
        (["--objectives", "dextr,-flops", "--winner-scores", "all"], "leave out --winner-scores."),
        (["--max-latency-ms", "0"], "--max-latency-ms takes more than 0 milliseconds, not 0."),
        (["--max-latency-ms", "-2"], "--max-latency-ms takes more than 0 milliseconds, not -2."),
        (["--max-latency-ms", "5", "--latency", "table:TABLE:phnoe"], "has no column 'phnoe'. Did you mean 'phone'?"),
        (
            ["--max-latency-ms", "0.5", "--latency", "table:TABLE:phone"],
            "No nb201 network takes at most 0.5 ms: the fastest",
        ),
        (["--max-latency-ms", "5", "--latency", "tensorrt"], "There is no latency source 'tensorrt'"),
        (["--max-latency-ms", "1e-6", "--batch-size", "1"], "The smallest nb201 network takes"),
        (["--method", "nasi", "--max-params", "1M"], "nasi searches inside one network, so --max-params means nothing"),
        (["--method", "nasi", "--budget", "0"], "at least 1 "),
        (["--method", "nasi", "--space", "mobilenet"], "has no relaxed network"),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[str], says: str, phones: Path) -> None:
    given = [argument.replace("TABLE", str(phones)) for argument in arguments]
    assert says in refusal("search", *given)


def test_without_onnxruntime_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert refusal("search", "--max-latency-ms", "5", "--latency", "onnxruntime").endswith("or use --latency torch.")


NASI = ["search", "--method", "nasi", "--proxy", "params", "--option", "nu=1", *FEW, "--option", "cells=3"]


def test_nasi_ends_the_same_in_one_go_in_two_and_further(tmp_path: Path) -> None:
    store = ["--store", tmp_path / "run.db", "--winner-scores", "none", "--json"]
    whole = epochzero(*NASI, "--budget", 4, "--winner-scores", "none", "--json").json
    first = epochzero(*NASI, "--budget", 2, *store).json
    further = epochzero(*NASI, "--budget", 4, *store).json
    assert (first["steps"], further["steps"]) == (2, 4)
    assert further["best"] == whole["best"] and further["weights"] == whole["weights"]
    assert SPACE.parse(whole["best"]["arch"])
    with Store.open(tmp_path / "run.db") as opened:
        states = [run.saved() for run in opened.runs() if run.kind == "inside"]
    assert [state["step"] for state in states if state is not None] == [2, 4]


def test_the_winner_inside_one_network_is_drawn_and_coded(tmp_path: Path) -> None:
    ran = epochzero(*NASI, "--budget", 1, "--out", tmp_path / "best")
    assert ran.code == 0 and "~0|" in ran.out and "1/1" in ran.err
    assert "\n1 step in " in ran.err
    assert {path.name for path in (tmp_path / "best").iterdir()} == {
        "cell.svg", "network.svg", "model.py", "winner.json",
    }  # fmt: skip


def test_all_searches_are_listed() -> None:
    rows = {row["name"]: row for row in epochzero("list", "searches", "--json").json["searches"]}
    assert {"nasi", "zero_cost_pt", "pareto", "evolution"} <= set(rows)
    assert "nu=usual" in rows["nasi"]["options"] and "population=32" in rows["pareto"]["options"]
    assert rows["pareto"]["about"].startswith("NSGA-II")


def test_zero_cost_pt_goes_by_the_proxy_of_the_command(tmp_path: Path) -> None:
    command = ["search", "--method", "zero_cost_pt", "--proxy", "l2_norm", "--option", "cells=3", *FEW]
    found = epochzero(*command, "--budget", 6, "--store", tmp_path / "run.db", "--winner-scores", "none", "--json").json
    assert found["steps"] == 6 and found["proxy"] == "l2_norm"
    assert list(found["weights"]["proposals"]) == [found["best"]["arch"]]
    with Store.open(tmp_path / "run.db") as store:
        state = store.runs()[0].saved()
    assert state is not None and state["settings"]["proxy"] == "l2_norm"  # type: ignore[index, call-overload]
    assert "A proposal of Zero-Cost-PT takes 6 steps here" in refusal(*command, "--budget", 5)
    cut = epochzero(*command, "--budget", 8, "--winner-scores", "none")
    assert "zero_cost_pt takes whole proposals: 6 of the 8 steps were taken." in " ".join(cut.err.split())
    by_two = refusal("search", "--method", "zero_cost_pt", "--proxy", "rank(params,flops)", *FEW)
    assert by_two == "zero_cost_pt goes by one proxy, not by rank(params,flops): name one with --proxy."


def test_time_may_end_a_search_inside_one_network(tmp_path: Path) -> None:
    store = ["--store", tmp_path / "run.db", "--winner-scores", "none", "--json"]
    part = epochzero(*NASI, "--budget", 3, "--time-limit", "1e-3", *store).json
    assert part["stopped"] == "the time limit of 0.001 s" and part["steps"] == 1
    assert sum(part["clock"].values()) == pytest.approx(part["seconds"]) and part["clock"]["building"] > 0
    whole = epochzero(*NASI, "--budget", 3, *store).json
    fresh = epochzero(*NASI, "--budget", 3, "--winner-scores", "none", "--json").json
    assert whole["steps"] == 3 and whole["weights"] == fresh["weights"]


def test_what_time_ended_goes_on_to_another_network(tmp_path: Path) -> None:
    command = ["search", "--method", "nasi", "--option", "nu=inf", "--option", "channels=2", "--proxy", "params", *FEW]
    command += ["--budget", "6", "--winner-scores", "none", "--json"]
    store = ["--store", tmp_path / "run.db"]
    part = epochzero(*command, "--time-limit", "1e-3", *store).json
    whole, fresh = epochzero(*command, *store).json, epochzero(*command).json
    assert part["best"]["arch"] != fresh["best"]["arch"], "the network has to change for this test"
    assert whole["best"] == fresh["best"] and whole["weights"] == fresh["weights"]


def test_time_may_end_nasi_before_its_first_step_and_nothing_is_lost(tmp_path: Path) -> None:
    command = ["search", "--method", "nasi", "--option", "nu=mean", "--option", "channels=2", "--proxy", "params", *FEW]
    command += ["--budget", "1", "--store", str(tmp_path / "run.db"), "--winner-scores", "none", "--json"]
    ran = epochzero(*command, "--time-limit", "1e-3")
    assert ran.code == 2 and "0.001 s were not enough to find a network" in " ".join(ran.err.split())
    with Store.open(tmp_path / "run.db") as store:
        state = store.runs()[0].saved()
    assert state is not None and (state["step"], len(state["mean"])) == (0, 1)  # type: ignore[arg-type]
    assert epochzero(*command).json["steps"] == 1
