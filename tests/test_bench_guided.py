"""The benchmark of guided search: tables joined with stored scores, regrets, its page, and the evidence."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.registry import spaces
from tests.test_bench_scripts import ROOT, script

NB201 = spaces["nb201"]
COLUMNS = ("cifar10_test", "cifar10_val_12ep")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of 40 networks, of which 30 have stored scores; accuracy is the number of convolutions."""
    archs = list(dict.fromkeys(NB201.sample(Random(i)) for i in range(40)))
    with (tmp_path / "nb201.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arch_str", *COLUMNS])
        rows.writerows([NB201.text(arch), accuracy(arch), accuracy(arch) + 0.1 * i] for i, arch in enumerate(archs))
    (tmp_path / "scores").mkdir()
    with (tmp_path / "scores" / "some.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["space", "arch", "proxy", "batch", "origin", "value", "status", "why", "seconds"])
        for i, arch in enumerate(archs[:30]):
            for proxy in ("naswot", "dextr"):
                value = accuracy(arch) if proxy == "naswot" else i
                rows.writerow(["nb201", NB201.text(arch), proxy, "cifar10-0", "default:0", value, "ok", "", 0.0])
    return tmp_path


def accuracy(arch: tuple[str, ...]) -> float:
    return float(sum("conv" in op for op in arch))


def ran(folder: Path, *options: object) -> None:
    arguments = ["guided.py", folder, "--scores", folder / "scores", "--only", "nb201 cifar10", *options]
    module = script("guided")
    with patch.object(sys, "argv", [*map(str, arguments)]), patch.multiple(module, POOL=30, SEARCHED=30):
        module.main()


def test_regrets_of_each_method(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "guided,local search,TPE,HNAS,`dextr` alone"
    ran(folder, "--methods", methods, "--seeds", 3, "--evaluations", 6, "--markdown", folder / "page.md")
    lines = capsys.readouterr().out.splitlines()
    assert [line[23:40].strip() for line in lines[:5]] == ["random", "local search", "TPE", "`dextr` alone", "guided"]
    (row,) = (line for line in lines if line.startswith("| nb201 cifar10"))
    assert row.startswith("| nb201 cifar10 | 30 | 12 epochs | ") and row.count("[") == 5, "HNAS has no scores here"
    assert lines[-1].startswith("| **share of random's** | | | 1.00 (1) |")
    assert row in (folder / "page.md").read_text().splitlines()


def test_a_regret_by_hand(folder: Path) -> None:
    module = script("guided")
    module.POOL = 30  # type: ignore[attr-defined]
    table = module.read(module.TABLES[0], folder, module.read_stored([folder / "scores"]))
    assert table.told == pytest.approx(table.final + 0.1 * np.arange(30))
    assert table.scores["layers"] == pytest.approx([layers(arch) for arch in table.archs])
    regret = module.searched(table, module.makers(table)["random"], 0, 10**6)
    part = list(range(30))
    Random(0).shuffle(part)
    part = part[:24]
    winner = max(part, key=lambda i: table.told[i])
    assert regret == table.final[part].max() - table.final[winner], "all of the part are evaluated"


def layers(arch: tuple[str, ...]) -> int:
    """Three stages of five cells; a stem, two residual blocks with three convolutions each, and a linear layer."""
    return 15 * sum("conv" in op for op in arch) + 1 + 6 + 1


def test_what_cannot_be_counted_keeps_its_stored_scores(folder: Path) -> None:
    """Such as models of timm where it is not installed."""
    module = script("guided")
    module.POOL = 100  # type: ignore[attr-defined]
    stored = module.read_stored([folder / "scores"])
    with patch.object(module, "Task", side_effect=UserError("not installed")):
        table = module.read(module.TABLES[0], folder, stored)
    assert len(table.archs) == 30 and table.scores.keys() == {"naswot", "dextr"}


def test_constants_without_a_space(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = script("guided_constants")
    with patch.object(module.bench, "POOL", 30):
        table = module.bench.read(module.bench.TABLES[0], folder, module.read_stored([folder / "scores"]))
    before = [getattr(module.guided, name) for name in module.NAMES]
    with patch.object(module, "MOST", 20):
        table = module.fewer(table)
        found = module.shares([table], 2, 4)
    assert len(table.archs) == 20 and found.keys() == module.VARIANTS.keys()
    assert all(0 <= share < 3 for by in found.values() for share in by.values())
    assert [getattr(module.guided, name) for name in module.NAMES] == before
    shares = {module.DEFAULT: {"a": 0.2, "b": 0.9, "c": 0.3}, "OWN x 2": {"a": 0.5, "b": 0.1, "c": 0.5}}
    assert module.left_out(shares) == {"a": "OWN x 2", "b": module.DEFAULT, "c": "OWN x 2"}
    assert "| **left out** | 0.50 | 0.90 | 0.50 | 0.63 |" in module.page(shares, "command")


def test_the_evidence(folder: Path) -> None:
    ran(folder, "--evidence", folder / "evidence.json")
    (by_proxy,) = json.loads((folder / "evidence.json").read_text()).values()
    assert by_proxy["naswot"] == 1.0 and -1 < by_proxy["dextr"] < 1 and {"flops", "depth"} <= by_proxy.keys()
