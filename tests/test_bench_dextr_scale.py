"""Dextr's constant from stored scores: figures against the formula written out."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from random import Random

import pytest
from scipy.stats import spearmanr

from epochzero.errors import DataError
from tests.test_bench_scripts import ROOT, script

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


@pytest.fixture(autouse=True)
def beside_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def written(folder: Path, names: tuple[str, ...] = ("fmi", "curvature")) -> tuple[Path, Path, dict[str, list[float]]]:
    rng = Random(0)
    archs = [f"|{a}~0|+|{b}~0|{c}~1|+|none~0|{a}~1|skip_connect~2|" for a in OPS for b in OPS for c in OPS[:2]]
    rows = {arch: [rng.uniform(0.5, 4), rng.uniform(0, 5), rng.uniform(50, 95)] for arch in archs}
    scores, table = folder / "scores.csv", folder / "nb201.csv"
    with scores.open("w", newline="") as file:
        csv.writer(file).writerows([["arch", *names, "reasons"], *([a, f, c, "{}"] for a, (f, c, _) in rows.items())])
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["arch_str", "cifar10_test"], *([a, y] for a, (_, _, y) in rows.items())])
    return scores, table, rows


def test_differences_are_those_of_the_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores, table, rows = written(tmp_path)
    script("dextr_scale").main([str(scores), "--table", str(table), "--constants", "1,24"])
    out = capsys.readouterr().out
    truth = [y for _, _, y in rows.values()]
    base = spearmanr([f for f, _, _ in rows.values()], truth).statistic
    for constant in (1, 24):
        bent = [math.log(1 + constant * math.expm1(c)) for _, c, _ in rows.values()]
        combined = [1 / (1 / f + 1 / b) for (f, _, _), b in zip(rows.values(), bent, strict=True)]
        gap = spearmanr(combined, truth).statistic - base
        (line,) = (line for line in out.splitlines() if f"kappa x {constant}, minus fmi" in line)
        assert float(line.split("|")[2].split("[")[0]) == pytest.approx(gap, abs=6e-4)
    assert out.count("chosen on one half") == 2


def test_a_missing_term_is_named(tmp_path: Path) -> None:
    scores, table, _ = written(tmp_path, ("fmi", "dextr"))
    with pytest.raises(DataError, match="curvature"):
        script("dextr_scale").main([str(scores), "--table", str(table)])
