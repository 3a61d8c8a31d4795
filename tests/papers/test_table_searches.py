"""Experiments that search tables: their figures by hand on a small table, missing columns and missing networks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.stats import spearmanr

from epochzero.errors import DataError
from epochzero.registry import experiments, spaces
from epochzero_papers.harness import table_searches
from epochzero_papers.harness.estimates import DEVIATION, estimate
from epochzero_papers.harness.table_searches import ACCURACY, TableSearch, TableSearches, Trials
from epochzero_papers.thesis.figure7_3 import Length
from epochzero_papers.thesis.figure7_5 import agreement
from epochzero_papers.thesis.table7_3 import hnas
from tests.command import epochzero

SPACE = spaces["nb201"]
CELLS = Random(1).sample(list(SPACE), 40)


def truth(cell: tuple[str, ...]) -> float:
    return 60 + 5.0 * cell.count("nor_conv_3x3") + cell.count("nor_conv_1x1")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nb201.csv and nb201_scores.csv; the pool has neither grasp, fisher nor synflow."""
    folder = tmp_path_factory.mktemp("data")
    rng = Random(0)
    with (folder / "nb201.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch_str", "cifar10_test", "cifar100_test", "imagenet16_test", "cifar10_val_12ep"])
        for cell in CELLS:
            writer.writerow([SPACE.text(cell), truth(cell), truth(cell) - 20, truth(cell) - 40, truth(cell) - 9])
    proxies = ["dextr", "naswot", "nasi_trace", "grad_norm", "snip", "ntk_trace", "ntk_cond", "linear_regions"]
    with (folder / "nb201_scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", *proxies])
        for cell in CELLS:
            writer.writerow([SPACE.text(cell), truth(cell), *(rng.lognormvariate(0, 1) for _ in proxies[1:])])
    return folder


@pytest.fixture(autouse=True)
def _no_other_pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table_searches, "OWN", tmp_path)


def test_a_search_by_the_truth_selects_the_best_with_every_seed(folder: Path) -> None:
    result = experiments["thesis-table6.1"].run(Trials(networks=3), folder=folder)
    rows = {(row.x, row.y, row.statistic): row for row in result.rows}
    found = rows["evolution, dextr (N=1000)", "C100", ACCURACY].found
    best = max(map(truth, CELLS))
    assert found is not None and (found.value, found.low, found.high, found.n) == (best - 20, best - 20, best - 20, 3)
    spread = rows["evolution, dextr (N=1000)", "C100", DEVIATION].found
    assert spread is not None and spread.value == 0
    assert rows["NASWOT (N=100)", "C10", ACCURACY].paper == 92.81
    assert "TE-NAS is left out: the pool has no column ntk_cond(of=sum)." in result.left_out
    told = next(line for line in result.left_out if line.startswith("NASI (T) is not measured here but by"))
    assert "python -m epochzero_papers nasi-record" in told and "nasi_grid report" in told


def test_a_metric_that_the_pool_lacks_is_named(folder: Path) -> None:
    pytest.importorskip("bayes_opt")
    pytest.importorskip("optuna")

    class Few(TableSearches):
        name, source = "few", "a test"
        searches = tuple(one._replace(evaluations=5) for one in experiments["thesis-table7.3"].searches[:3])

    result = Few().run(Trials(networks=3), folder=folder)
    assert {row.x for row in result.rows} == {"HNAS (grad)", "HNAS (snip)"}
    assert result.left_out == ["HNAS (grasp) is left out: the pool has no column grasp."]


def test_table_7_3_has_every_metric_and_every_baseline() -> None:
    labels = [spec.label for spec in experiments["thesis-table7.3"].searches]
    assert len(set(labels)) == len(labels)
    assert {f"HNAS ({m})" for m in ("grad", "snip", "grasp", "trace", "knas", "fisher", "synflow", "naswot")} <= set(
        labels
    )
    assert {"REA", "random", "REINFORCE", "TPE", "TE-NAS", "KNAS"} <= set(labels)
    assert {figure.x for figure in experiments["thesis-table7.3"].quoted} <= set(labels)


def test_regret_never_counts_what_was_not_seen(folder: Path) -> None:
    pytest.importorskip("bayes_opt")
    pytest.importorskip("optuna")
    result = experiments["thesis-figure7.3"].run(Length(networks=3, evaluations=5), folder=folder)
    curves: dict[str, list[float]] = {}
    for row in result.rows:
        assert row.found is not None and row.statistic == "regret %"
        curves.setdefault(row.x, []).append(row.found.value)
    assert {"HNAS (trace)", "REA", "random", "REINFORCE", "TPE", "trace metric"} <= set(curves)
    for curve in curves.values():
        assert len(curve) == 3 and min(curve) >= 0
        assert curve == sorted(curve, reverse=True), "feedback and test agree here, so the regret only falls"


def test_correlations_of_the_tuned_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bayes_opt")
    monkeypatch.setattr("epochzero_papers.thesis.figure7_5.EVALUATIONS", 6)
    result = experiments["thesis-figure7.5"].run(Trials(networks=3), folder=folder)
    assert [row.y for row in result.rows if row.x == "HNAS (trace)"] == ["grid", *(f"step {k}" for k in range(1, 7))]
    assert all(row.found is not None and -1 <= row.found.low <= row.found.high <= 1 for row in result.rows)


def test_whether_bounds_that_order_well_select_well_by_hand(folder: Path) -> None:
    pytest.importorskip("bayes_opt")
    with (folder / "nb201_scores.csv").open(newline="") as file:
        scores = list(csv.DictReader(file))
    kappa, squares = (np.array([float(row[name]) for row in scores]) for name in ("ntk_cond", "ntk_trace"))
    accuracy = np.array([truth(SPACE.parse(row["arch"])) for row in scores])
    ratio = kappa / np.sqrt(squares)
    orders, selects = [], []
    for u in range(11):
        for c in range(-9, 4):
            nu, mu = np.quantile(squares, u / 10), 10**c * np.median(ratio) / np.median(squares) ** 2
            bound = ratio + mu * (squares - nu) ** 2
            orders.append(spearmanr(-bound, accuracy).statistic)
            selects.append(accuracy[bound.argmin()])
    found = agreement(table_searches.SearchTables.open("a test", folder), hnas("trace"))
    assert found == pytest.approx(spearmanr(orders, selects).statistic)


def test_mean_and_deviation_by_hand() -> None:
    mean, deviation = estimate([1.0, 2.0, 6.0]), estimate([1.0, 2.0, 6.0], DEVIATION)
    half = 4.302653 * np.sqrt(7 / 3)  # Student's t with two degrees of freedom
    assert (mean.value, mean.low, mean.high, mean.n) == pytest.approx((3, 3 - half, 3 + half, 3))
    squares = 14 / np.array([7.377759, 0.0506356])  # chi-square with two degrees of freedom
    assert (deviation.value, deviation.low, deviation.high) == pytest.approx((np.sqrt(7), *np.sqrt(squares)))


def test_one_search_has_no_interval() -> None:
    alone = estimate([93.5])
    assert (alone.value, alone.low, alone.high, alone.n) == (93.5, 93.5, 93.5, 1)


@pytest.mark.parametrize("searches", [3, 5, 10])
@pytest.mark.parametrize(("statistic", "true"), [(ACCURACY, 90.0), (DEVIATION, 2.0)])
def test_intervals_over_few_searches_hold_the_truth_in_95_of_100(searches: int, statistic: str, true: float) -> None:
    drawn = np.random.default_rng(searches).normal(90, 2, size=(2000, searches))
    found = [estimate(values, statistic) for values in drawn.tolist()]
    assert np.mean([one.low <= true <= one.high for one in found]) == pytest.approx(0.95, abs=0.02)


def test_what_a_contest_reads() -> None:
    assert TableSearch("", "top_k", "table:x", 3, {"proxy": "naswot"}).needs == ["naswot"]
    assert TableSearch("", "hnas", "table:x", 3, {"metric": "snip"}).needs == ["snip", "ntk_cond"]
    assert TableSearch("", "random", "rank(dextr,zico)", 3).needs == ["dextr", "zico"]


def test_missing_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"thesis-table6.1 needs data .* nb201_all_cifar10.parquet .* and nb201.ezb"):
        experiments["thesis-table6.1"].run(folder=tmp_path)
    assert experiments["thesis-table7.3"].status(tmp_path) == "needs data"


def test_the_command_writes_everything(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = experiments["thesis-table6.1"]
    monkeypatch.setattr(experiment, "searches", experiment.searches[-1:], raising=False)
    ran = epochzero("reproduce", "thesis-table6.1", "--quick", "--data-folder", folder, "--out", tmp_path / "out")
    assert ran.code == 0 and "evolution, dextr" in ran.out
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert written["settings"]["networks"] == 3
