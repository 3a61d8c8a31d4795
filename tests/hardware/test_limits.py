"""A program of the user's as the source of latencies, limits of throughput and of energy by a table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

import epochzero as ez
from epochzero.hardware.latency import meter_of, slowest
from epochzero.hardware.timing import Timing, UnmeasurableError
from epochzero.store import Store
from tests.command import epochzero, refusal
from tests.hardware.test_latency import SPACE, task_of

BOARD = """import sys
from pathlib import Path

size = len(Path(sys.argv[1]).read_bytes())
mode = sys.argv[2] if len(sys.argv) > 2 else ""
if mode == "broken":
    sys.exit("the board is gone")
print("warm" if mode == "talks" else f"{size / 1000} {size / 1000 + 1}", size / 1000 + 2, sep="\\n")
"""


@pytest.fixture
def board(tmp_path: Path) -> str:
    """A program that takes as long as the model has kilobytes, with two slower runs."""
    file = tmp_path / "board.py"
    file.write_text(BOARD)
    return f"command:{sys.executable} {file} {{onnx}}"


def test_a_program_times_the_exported_network(board: str) -> None:
    meter = meter_of(board, task_of())
    small, large = meter(2), meter(48)
    assert isinstance(small, Timing) and small.low + 1 == pytest.approx(small.median)
    assert small.high == pytest.approx(small.median + 1) and large.median > small.median
    assert "batch 1 of" in meter.name and meter.facts["command"].endswith("{onnx}")


def test_a_program_that_fails_is_a_reason(board: str) -> None:
    with pytest.raises(UnmeasurableError, match="the command ended with 1: the board is gone"):
        meter_of(f"{board} broken", task_of())(2)
    with pytest.raises(UnmeasurableError, match="one number a run, and printed 'warm"):
        meter_of(f"{board} talks", task_of())(2)


def test_commands_that_are_none(board: str) -> None:
    common = ("search", "--space", "mlp", "--proxy", "params", "--budget", 2, "--max-latency-ms", 5, "--latency")
    assert "names the model file" in refusal(*common, "command:ls")
    assert "There is no program './nowhere' to run" in refusal(*common, "command:./nowhere {onnx}")
    assert "cannot be split into words" in refusal(*common, "command:ls '{onnx}")
    assert (
        "cannot be measured: the command ended with 1: the board is gone" in epochzero(*common, f"{board} broken").err
    )


def test_a_search_and_a_ranking_by_a_program(board: str, tmp_path: Path) -> None:
    common = ("search", "--space", "mlp", "--proxy", "params", "--budget", 3, "--batch-size", 2, "--json")
    ran = epochzero(*common, "--max-latency-ms", 1e6, "--latency", board, "--store", tmp_path / "r.db")
    best = ran.json["latency"]["best"]
    assert best["low_ms"] + 1 == pytest.approx(best["median_ms"]) and best["high_ms"] > best["median_ms"]
    with Store.open(tmp_path / "r.db") as store:
        assert any(row.proxy == "latency_high" for row in store.all_scores())
    ranking = ez.rank(["2", "48"], proxy="params", space="mlp", seeds=1, latency=board, batch_size=2)
    assert all(isinstance(row.latency, Timing) and row.latency.low < row.latency.high for row in ranking)
    shown = epochzero("rank", "2", "--space", "mlp", "--proxy", "params", "--latency", board, "--batch-size", 2)
    assert f" [{ranking['2'].latency.low:.3g}, " in shown.out


def test_throughput_is_a_latency() -> None:
    assert slowest(None, None, 8) is None and slowest(5.0, None, 8) == 5
    assert slowest(None, 1000.0, 8) == 8 and slowest(5.0, 1000.0, 8) == 5 and slowest(50.0, 1000.0, 8) == 8
    assert "more than 0 samples a second, not -1" in refusal("search", "--space", "mlp", "--min-throughput", -1)


def test_throughput_on_the_command_line(board: str) -> None:
    common = ("search", "--space", "mlp", "--proxy", "params", "--budget", 3, "--batch-size", 2, "--latency", board)
    limit = meter_of(board, task_of())(8).high + 0.01
    asked = (*common, "--min-throughput", 4 * 1e3 / limit, "--latency-batch", 4)
    found = epochzero(*asked, "--json").json["latency"]
    assert found["limit_ms"] == pytest.approx(limit) and found["best"]["high_ms"] <= limit
    assert "samples a second in batches of 4)" in epochzero(*asked).out


def table(path: Path) -> Path:
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", "board_energy", "phone"])
        for arch in SPACE:
            writer.writerow([SPACE.text(arch), arch / 10, arch])
    return path


def test_energy_by_a_table(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv")
    common: tuple[Any, ...] = ("search", "--space", "mlp", "--proxy", "params", "--budget", 6, "--batch-size", 2)
    energy = ("--energy", f"table:{file}:board_energy", "--max-energy", 2)
    ran = epochzero(*common, *energy, "--store", tmp_path / "r.db", "--json").json
    assert ran["energy"]["value"] <= 2 == ran["energy"]["limit"] and "latency" not in ran
    with Store.open(tmp_path / "r.db") as store:
        (run,) = [run for run in store.runs() if run.kind == "search"]
        archs = [step.arch for steps in run.history().values() for step in steps]
    assert run.settings["max_energy"] == 2 and str(run.settings["energy"]).endswith("board_energy")
    assert len(archs) == 6 and all(SPACE.parse(arch) <= 20 for arch in archs)
    assert "energy  " in epochzero(*common, *energy).out
    both = epochzero(*common, *energy, "--latency", f"table:{file}:phone", "--max-latency-ms", 12, "--json").json
    assert both["latency"]["best"]["median_ms"] <= 12 and both["energy"]["value"] <= 1.2
    found = ez.search("mlp", "params", budget=2, batch_size=2, energy=energy[1], max_energy=2)
    assert found.limit is not None and found.winner.arch <= 20


def test_energies_that_are_none(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv")
    common = ("search", "--space", "mlp", "--proxy", "params", "--max-energy")
    assert "give --energy table:FILE:COLUMN" in refusal(*common, 2)
    assert "--max-energy takes more than 0" in refusal(*common, -2, "--energy", f"table:{file}:board_energy")
    said = refusal(*common, 0.001, "--energy", f"table:{file}:board_energy")
    assert "takes at most 0.001 of" in said and "the least is 0.2" in said
