"""NAS-Bench-101 as a pool: regrets by hand, scores from two tables, cells that are scored on demand."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import pytest

from epochzero.registry import experiments, spaces
from epochzero.study.sources import TableSource
from epochzero_papers.harness import table_searches
from epochzero_papers.harness.files import File
from epochzero_papers.harness.table_searches import ACCURACY, TableSearch
from epochzero_papers.ours import nb101_pool
from epochzero_papers.ours.nb101_pool import EVERY, REGRET, Cells, NB101Pool, joined

SPACE = spaces["nb101"]
CELLS = list(dict.fromkeys(SPACE.sample(Random(place)) for place in range(30)))


def accuracy(place: int) -> float:
    return 0.8 + place / 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Accuracies of 30 cells, scores of the first 20, kernels of the first 10."""
    folder = tmp_path_factory.mktemp("nb101")
    texts = [SPACE.text(cell) for cell in CELLS]
    tables = {
        "nb101_scores.csv": (["arch", "dextr", "snip"], [[t, i, 20 - i] for i, t in enumerate(texts[:20])]),
        "nb101_kernels.csv": (["arch", "ntk_cond"], [[t, 1 + i] for i, t in enumerate(texts[:10])]),
        "nb101.csv": (
            ["arch", "test_acc_108ep", "val_acc_12ep"],
            [[t, accuracy(i), accuracy(i) - 0.2] for i, t in enumerate(texts)],
        ),
    }
    for name, table in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([table[0], *table[1]])
    return folder


@pytest.fixture(autouse=True)
def _these_files_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table_searches, "OWN", tmp_path)
    table = File(("nb101.csv",), "accuracies")
    benchmark = table_searches.Benchmark("nb101", table, nb101_pool.SCORES, {"C10": "test_acc_108ep"}, percent=100)
    monkeypatch.setattr(NB101Pool, "benchmark", benchmark)


def test_regrets_are_those_of_each_contest_s_own_pool(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bayes_opt")
    by_kernels = TableSearch(
        "HNAS (snip)", "hnas", nb101_pool.FEEDBACK, 10, {"metric": "snip", "networks": 99, "probes": 9}
    )
    monkeypatch.setattr(NB101Pool, "searches", (NB101Pool.searches[0], by_kernels, NB101Pool.searches[2]))
    result = experiments["nb101-pool"].run(Cells(networks=3, evaluations=0), folder=folder)
    rows = {(row.x, row.statistic): row for row in result.rows}
    best = rows["evolution, dextr", ACCURACY].found
    assert best is not None and best.value == pytest.approx(81.9), "the best of 20 by dextr is the best by accuracy"
    regret = rows["evolution, dextr", REGRET]
    assert regret.found is not None and regret.found.value == pytest.approx(0)
    assert regret.y == "C10, best of 20: 81.90"
    hnas = rows["HNAS (snip)", REGRET]
    assert hnas.y == "C10, best of 10: 80.90", "of the networks that have kappa"
    assert hnas.found is not None and hnas.found.value == pytest.approx(0), "all ten were evaluated"
    assert "HNAS (grad) is left out: the pool has no column grad_norm." in result.left_out
    assert f"{EVERY}: left out of this small form." in result.left_out


def test_every_cell_is_scored_when_it_is_looked_at(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NB101Pool, "searches", ())
    monkeypatch.setattr(nb101_pool, "BY", "params")
    settings = Cells(networks=3, evaluations=30, batch_size=2)
    result = experiments["nb101-pool"].run(settings, folder=folder, store=tmp_path / "run.db")
    rows = {(row.x, row.statistic): row for row in result.rows}
    largest = max(range(len(CELLS)), key=lambda place: SPACE.plan(CELLS[place]).params)
    found = rows[EVERY, ACCURACY].found
    assert found is not None and found.value == pytest.approx(100 * accuracy(largest)) and found.n == 3
    regret = rows[EVERY, REGRET].found
    assert regret is not None and regret.value == pytest.approx(100 * (accuracy(len(CELLS) - 1) - accuracy(largest)))


def test_two_tables_are_joined_by_network(folder: Path) -> None:
    scores, kernels = (
        TableSource.read(folder / name, SPACE, pool=True) for name in ("nb101_scores.csv", "nb101_kernels.csv")
    )
    both = joined(scores, kernels)
    assert both.archs == scores.archs and both.value(SPACE.text(CELLS[3]), "ntk_cond").value == 4
    assert both.value(SPACE.text(CELLS[3]), "snip").value == 17
    assert not both.value(SPACE.text(CELLS[15]), "ntk_cond").ok


def test_the_command_knows_it() -> None:
    assert experiments["nb101-pool"].status("nowhere") == "needs data"
    labels = [spec.label for spec in experiments["nb101-pool"].searches]
    assert {"evolution, dextr", "HNAS (knas)", "REA, 20 evaluations"} <= set(labels) and len(labels) == len(set(labels))
