"""The files of `epochzero bench --out`: figures, scores, the ranking and pictures."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from epochzero.evaluate.plots import is_wide, spread_out
from epochzero.evaluate.results import file_name, interval
from epochzero.pictures import new_figure
from epochzero.stats import Estimate
from tests.cli.bench_tables import CELLS, FEW, read, written
from tests.command import Ran, epochzero, refusal

ACCURACY = [80.1, 91.5, 93.0, 88.2, 92.1, 60.4, 10.0]
PROXIES = ("synflow", "zico(batches=3)", "rank(synflow,params)")


@pytest.fixture(scope="module")
def written_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bench")
    table = written(folder / "small.csv", {"arch": CELLS, "test_acc": ACCURACY, "flat": [1] * 7})
    bench = (
        "bench",
        "--table",
        table,
        "--target",
        "test_acc,flat",
        "--proxy",
        ",".join(PROXIES),
        *FEW,
        "--seeds",
        "0,1",
    )
    ran = epochzero(*bench, "--out", folder / "made" / "here", "--json")
    assert "results.json, results.csv, scores.csv, ranking.md, 14 pictures" in " ".join(ran.err.split())
    return folder / "made" / "here", ran.json


def test_results_are_those_that_are_printed(written_out: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = written_out
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == printed
    figures = {(row["proxy"], row["target"], row["statistic"]): row for row in read(folder / "results.csv")}
    for result in printed["results"]:
        for statistic, figure in result["figures"].items():
            row = figures.pop((result["proxy"], result["target"], statistic))
            assert (row["table"], row["space"], row["unit"]) == ("small.csv", "nb201", result["unit"])
            if "why" in figure:
                assert row["why"] == figure["why"] and row["value"] == ""
            else:
                assert [float(row[name]) for name in ("value", "low", "high")] == [
                    figure[name] for name in ("value", "low", "high")
                ]
                assert int(row["repeats"]) == len(figure["by_repeat"]) == 2
    assert not figures


def test_every_score_is_kept_with_its_seed_and_reason(written_out: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = written_out
    rows = read(folder / "scores.csv")
    assert len(rows) == 7 * 2 * 3, "networks, repeats, proxies; a combination has no scores of its own"
    cut = [row for row in rows if row["arch"] == CELLS[-1] and row["proxy"] == "synflow"]
    assert [row["origin"] for row in cut] == ["default:0", "default:1"]
    assert {(row["value"], row["status"], row["why"]) for row in cut} == {
        ("", "degenerate", "no signal flows from the input to the output")
    }
    assert all(math.isfinite(float(row["value"])) for row in rows if row["status"] == "ok")


def test_the_ranking_is_a_table_of_text(written_out: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = written_out
    text = (folder / "ranking.md").read_text(encoding="utf-8")
    assert "## small.csv, test_acc" in text and "## small.csv, flat" in text
    lines = [line for line in text.split("## ")[1].splitlines() if line.startswith("| ") and "proxy" not in line][1:]
    order = [place["proxy"] for place in printed["ranking"] if place["target"] == "test_acc"]
    assert [line.split(" | ")[1] for line in lines] == order and sorted(order) == sorted(PROXIES)
    assert "true values are equal, so nothing can be ranked" in text
    assert "small.csv: 7 of 7 networks of nb201; 2 repeats, weights default:0, default:1" in text


def test_pictures_of_every_row_and_of_the_ranking(written_out: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = written_out
    names = {file_name("small.csv", target, proxy) for target in ("test_acc", "flat") for proxy in PROXIES}
    assert "small-test_acc-zico_batches_3" in names and len(names) == 6
    pictures = {path.stem for path in folder.glob("*.png")}
    assert pictures == {path.stem for path in folder.glob("*.svg")} == names | {"ranking"}
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in folder.glob("*.svg"):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg") and len(list(root.iter())) > 50


def test_a_long_range_of_scores_has_a_logarithmic_axis() -> None:
    assert is_wide(np.logspace(0, 6, 20)) and not is_wide(np.linspace(1, 50, 20))
    assert not is_wide(np.linspace(-1, 1e6, 20)) and not is_wide(np.array([]))


def test_a_few_large_values_do_not_hide_the_rest() -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")

    def scale(x: np.ndarray) -> str:
        axes = new_figure(2, 2).add_subplot()
        spread_out(axes, x)
        return str(axes.get_xscale())

    assert scale(np.logspace(0, 6, 20)) == scale(np.r_[np.linspace(1, 2, 20), 1e3]) == "log"
    assert scale(np.r_[np.linspace(-1, 1, 20), -1e3]) == "symlog"
    assert scale(np.linspace(-1, 1, 20)) == scale(np.zeros(5)) == scale(np.array([])) == "linear"


def bench_into(folder: Path) -> Ran:
    table = written(folder / "small.csv", {"arch": CELLS, "test_acc": ACCURACY})
    return epochzero(
        "bench", "--table", table, "--target", "test_acc", "--proxy", "params", *FEW, "--out", folder / "out"
    )


def test_without_matplotlib_there_is_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return found(name, package)

    monkeypatch.setattr("epochzero.errors.import_module", missing)
    ran = bench_into(tmp_path)
    assert ran.code == 0
    assert "A plot needs matplotlib: pip install 'epochzero[plots]'." in " ".join(ran.err.split())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.json",
        "results.csv",
        "scores.csv",
        "ranking.md",
    }


def test_a_folder_that_cannot_be_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    table = written(tmp_path / "small.csv", {"arch": CELLS, "test_acc": ACCURACY})
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "params", *FEW)
    assert "cannot be written" in refusal(*bench, "--out", tmp_path / "out")


def test_a_figure_of_some_pairs_tells_how_many() -> None:
    assert interval(Estimate(0.5, -0.25, 0.75, 12)) == ".500 [-.250, .750]"
    assert interval(Estimate(0.5, -0.25, 0.75, 12, pairs=1030)) == ".500 [-.250, .750], 1,030 pairs"
