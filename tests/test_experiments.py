"""Experiments: what they measure against slow versions, what they write, how they resume, what they refuse."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap, kendalltau, pearsonr, spearmanr

from epochzero import data
from epochzero.errors import DataError, DegenerateError, UserError
from epochzero.experiments import nasi_figure1, nasi_table7, thesis_table7_4
from epochzero.experiments.base import Result, Settings
from epochzero.experiments.connections import Column, Connections, Load, Pair
from epochzero.experiments.nasi_table7 import Sizes
from epochzero.experiments.report import as_csv, as_markdown, short, table, write
from epochzero.registry import experiments, proxies, spaces
from epochzero.run.task import Task
from epochzero.stats import pearson
from tests.command import epochzero, refusal
from tests.data_files import labelled, save

TINY: dict[str, Settings] = {
    "nasi-figure1": Settings(networks=3, batch_size=4),
    "nasi-table7": Sizes(networks=3, batch_size=8, samples=2),
    "thesis-table7.4": Settings(networks=3, batch_size=4),
}
SMALL_IMAGES = np.random.default_rng(5).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images of 8x8 pixels in 3 classes."""
    return save(tmp_path_factory.mktemp("data") / "images.npz", x=SMALL_IMAGES, y=np.arange(40) % 3)


@pytest.fixture(scope="module")
def results(images: Path) -> dict[str, Result]:
    return {name: experiments[name].run(settings, data=images) for name, settings in TINY.items()}


class Counts(Connections[Settings]):
    """Quick enough to run often: parameters against multiply-accumulates, and a column without a value."""

    name = "counts"
    source = "nowhere"
    full = quick = Settings(networks=10, batch_size=2)

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        batch, other = load(settings.batch_size), load(settings.batch_size + 1)
        return [
            Column("params", proxies["params"], batch, lambda value: value / 1e6),
            Column("flops", proxies["flops"], other),
            Column("tf_tas", proxies["tf_tas"], batch),
        ]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        printed = {name: {"nb201": 0.5, "elsewhere": 0.25} for name in ("pearson", "spearman", "kendall")}
        return [Pair("params", "flops", printed), Pair("params", "tf_tas", {"pearson": {"elsewhere": 0.125}})]


@pytest.fixture(scope="module")
def counts(images: Path) -> Result:
    return Counts().run(Settings(networks=12, batch_size=2), seed=3, data=images)


# The recipes


def test_every_recipe_runs_and_quotes_its_paper(results: dict[str, Result]) -> None:
    assert set(results) == set(experiments), "a recipe without tiny settings here"
    for name, result in results.items():
        recipe = experiments[name]
        assert recipe.name == result.experiment == name
        assert result.about.endswith(".") and result.about == recipe.about
        assert recipe.quick.networks < recipe.full.networks
        assert len(result.archs) == len(set(result.archs)) == 3
        assert any(row.paper for row in result.rows)
        for row in result.rows:
            assert all(-1 <= value <= 1 for value in row.paper.values())
            if row.found is not None:
                assert -1 <= row.found.low <= row.found.high <= 1
                assert row.found.n == 3 - row.unscored
        assert {row.x for row in result.rows} | {row.y for row in result.rows} == set(result.columns)


def test_the_thesis_compares_thirteen_pairs_three_ways(results: dict[str, Result]) -> None:
    rows = results["thesis-table7.4"].rows
    assert len(rows) == 39
    printed = {(row.x, row.y, row.statistic): row.paper["nb201"] for row in rows}
    assert printed["grad", "trace", "pearson"] == 0.98
    assert printed["knas", "grasp", "spearman"] == 0.87
    assert printed["fisher", "trace", "kendall"] == 0.69


def test_nasi_prints_mini_batches_up_to_the_largest_and_the_sum(results: dict[str, Result]) -> None:
    rows = results["nasi-table7"].rows
    pearsons = [row for row in rows if row.statistic == "pearson"]
    assert [(row.x, row.y) for row in pearsons] == [("exact", "b = 4"), ("exact", "b = 8"), ("exact", "sum")]
    assert pearsons[0].paper == {"S1": 0.74, "S2": 0.82, "S3": 0.66}
    assert pearsons[2].paper == {"S1": 0.88, "S2": 0.92, "S3": 0.87}
    assert all(row.difference is None for row in rows), "the paper has other spaces"
    assert nasi_table7.NasiTable7.full.batches == [4, 8, 16, 32, 64, 128]


def slow_gradients(arch: str, images: Path, size: int, of: Callable[[Any, Any], Any]) -> torch.Tensor:
    """One row for each number that `of(logits, labels)` has: its gradient over everything trainable."""
    batch = data.load(images, size=size, parts=1)
    x, y = labelled(batch)
    space = spaces["nb201"]
    module = space.plan(space.parse(arch), 3, (3, 8, 8)).module().train()
    leaves = [leaf for leaf in module.parameters() if leaf.requires_grad]
    rows = []
    for number in of(module(x), y):
        found = torch.autograd.grad(number, leaves, retain_graph=True, allow_unused=True)
        filled = (torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
        rows.append(torch.cat([g.flatten() for g in filled]).double())
    return torch.stack(rows)


def test_the_columns_are_what_the_papers_define(results: dict[str, Result], images: Path) -> None:
    def logits(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return out.flatten()

    def label(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return out[torch.arange(len(y)), y]

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(out, y, reduction="none")

    archs = results["nasi-table7"].archs
    assert archs == results["thesis-table7.4"].archs == results["nasi-figure1"].archs, "one seed, one sample"
    for i, arch in enumerate(archs[:1]):
        expected = {
            ("nasi-table7", "exact"): slow_gradients(arch, images, 2, logits).square().sum(),
            ("nasi-table7", "sum"): slow_gradients(arch, images, 2, loss).square().sum(),
            ("nasi-table7", "b = 8"): slow_gradients(arch, images, 8, loss).mean(0).square().sum(),
            ("nasi-figure1", "true"): slow_gradients(arch, images, 4, loss).mean(0).square().sum(),
            ("thesis-table7.4", "trace"): (slow_gradients(arch, images, 4, label).square().sum() / 4).sqrt(),
            ("thesis-table7.4", "knas"): slow_gradients(arch, images, 4, label).mean(0).norm(),
        }
        for (experiment, name), value in expected.items():
            assert results[experiment].values[name][i] == pytest.approx(float(value), rel=1e-3), name


def test_random_labels_and_random_data_change_one_thing_each(images: Path) -> None:
    batch = data.load(images, size=30, parts=1)
    x, y = labelled(batch)
    relabelled, replaced = nasi_figure1.random_labels(batch, 1), nasi_figure1.random_data(batch, 1)
    other_x, other_y = labelled(relabelled)
    assert torch.equal(other_x, x) and not torch.equal(other_y, y)
    assert set(other_y.tolist()) == {0, 1, 2}
    noise, same_y = labelled(replaced)
    assert torch.equal(same_y, y)
    assert abs(float(noise.mean())) < 0.05 and abs(float(noise.std()) - 1) < 0.05
    assert torch.equal(labelled(nasi_figure1.random_labels(batch, 1))[1], other_y), "a pure function of the seed"
    assert not torch.equal(labelled(nasi_figure1.random_labels(batch, 2))[1], other_y)
    assert len({batch.id, relabelled.id, replaced.id, nasi_figure1.random_labels(batch, 2).id}) == 4


def test_synflow_is_shown_without_its_logarithm(results: dict[str, Result], images: Path) -> None:
    result = results["thesis-table7.4"]
    space = spaces["nb201"]
    task = Task(space, [proxies["synflow"]], data.load(images, size=4, parts=1))
    score = task.score([space.parse(result.archs[0])])[0][0]["synflow"]
    assert result.values["synflow"][0] == pytest.approx(math.exp(score.value))


def test_the_thesis_knas_is_not_added_to_the_proxies() -> None:
    assert thesis_table7_4.KNAS.name not in proxies


# Correlations


def test_pearson_and_its_interval_against_scipy() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = 0.7 * x + rng.normal(size=60)
    found = pearson(x.tolist(), (1e40 * y).tolist(), resamples=4000)
    assert found.value == pytest.approx(pearsonr(x, y).statistic)
    assert found.n == 60

    def statistic(a: Any, b: Any, axis: int) -> Any:
        return pearsonr(a, b, axis=axis).statistic

    slow = bootstrap((x, y), statistic, paired=True, n_resamples=4000, method="percentile", rng=1).confidence_interval
    assert (found.low, found.high) == pytest.approx((slow.low, slow.high), abs=0.02)


def test_pearson_by_hand_and_where_there_is_none() -> None:
    assert pearson([1, 2, 3], [1, 2, 4]).value == pytest.approx(3 / math.sqrt(2 * 14 / 3))
    exact = pearson([0.1, 0.1, 0.1, 0.7], [3, 3, 3, 5])  # many resamples hold one value alone
    assert (exact.low, exact.value, exact.high) == pytest.approx((1, 1, 1), abs=1e-14)
    with pytest.raises(DegenerateError, match="all 3 scores are equal"):
        pearson([2, 2, 2], [1, 2, 3])
    with pytest.raises(DegenerateError, match="at least 3 networks"):
        pearson([1, 2], [1, 2])


def test_rows_are_correlations_of_the_values_shown(counts: Result) -> None:
    x, y = counts.values["params"], counts.values["flops"]
    expected: dict[str, Any] = {"pearson": pearsonr, "spearman": spearmanr, "kendall": kendalltau}
    for row in counts.rows[:3]:
        assert row.found is not None
        assert row.found.value == pytest.approx(expected[row.statistic](x, y).statistic)
        assert row.difference == pytest.approx(row.found.value - 0.5)
    space = spaces["nb201"]
    assert x == [space.plan(space.parse(arch), 3, (3, 8, 8)).params / 1e6 for arch in counts.archs]


def test_a_column_without_values_says_why(counts: Result) -> None:
    row = counts.rows[3]
    assert (row.found, row.difference, row.unscored) == (None, None, 12)
    assert row.why == "a correlation needs at least 3 networks; there are 0"
    assert sum(counts.unscored["tf_tas"].values()) == 12
    assert counts.unscored["params"] == {}


def test_another_seed_is_another_sample(counts: Result, images: Path) -> None:
    settings = Settings(networks=12, batch_size=2)
    again, other = (Counts().run(settings, seed=seed, data=images) for seed in (3, 4))
    assert (again.archs, again.values, again.rows) == (counts.archs, counts.values, counts.rows)
    assert set(other.archs) != set(counts.archs)


# Resuming


def test_a_stopped_run_computes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Result, images: Path
) -> None:
    scored: list[tuple[str, str]] = []
    score = Task.score

    def counting(task: Task, archs: Sequence[Any]) -> Any:
        scored.extend((task.batch.id, task.space.text(arch)) for arch in archs)
        return score(task, archs)

    def stop(done: int, total: int) -> None:
        assert total == 12
        if done >= 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(Task, "score", counting)
    settings, store = Settings(networks=12, batch_size=2), tmp_path / "run.db"
    with pytest.raises(KeyboardInterrupt):
        Counts().run(settings, seed=3, data=images, store=store, progress=stop)
    assert len(scored) == 16
    seen: list[tuple[int, int]] = []
    result = Counts().run(settings, seed=3, data=images, store=store, progress=lambda *done: seen.append(done))
    assert len(scored) == len(set(scored)) == 24, "12 networks on 2 batches, each once"
    assert seen == [(0, 12), (4, 12), (8, 12), (12, 12)]
    assert (result.rows, result.values) == (counts.rows, counts.values)
    Counts().run(settings, seed=3, data=images, store=store)
    assert len(scored) == 24


# Files


def test_numbers_are_written_short() -> None:
    assert [short(value) for value in (0.8921, -0.1, 1.0, -1.0, -0.0001, 0.9999)] == [
        ".892",
        "-.100",
        "1.000",
        "-1.000",
        ".000",
        "1.000",
    ]


def test_files_hold_the_result(counts: Result, tmp_path: Path) -> None:
    names = write(counts, tmp_path)
    assert names[:3] == ["result.json", "result.csv", "result.md"]
    read = json.loads((tmp_path / "result.json").read_text())
    assert read["rows"][0]["found"]["value"] == pytest.approx(counts.rows[0].found.value)  # type: ignore[union-attr]
    assert read["values"] == counts.values
    assert read["settings"] == {"networks": 12, "batch_size": 2}
    assert read["seed"] == 3
    assert read["machine"]["cpu_count"] and read["versions"]["torch"] and read["date"]
    assert "commit" not in json.dumps(read)
    rows = list(csv.DictReader((tmp_path / "result.csv").read_text().splitlines()))
    assert [row["statistic"] for row in rows] == ["pearson", "spearman", "kendall", "pearson"]
    assert (rows[0]["n"], rows[0]["paper_nb201"], rows[0]["paper_elsewhere"]) == ("12", "0.5", "0.25")
    assert (rows[3]["value"], rows[3]["unscored"], rows[3]["paper_nb201"]) == ("", "12", "")


def test_markdown_sets_ours_beside_the_papers(counts: Result) -> None:
    lines = as_markdown(counts).splitlines()
    assert lines[0] == "## counts"
    heads = "|  | statistic | n | ours [95 %] | paper nb201 | paper elsewhere | difference |"
    first = lines.index(heads) + 2
    found = counts.rows[0].found
    assert found is not None
    assert lines[first].startswith(f"| params, flops | pearson | 12 | {short(found.value)} [{short(found.low)}, ")
    assert lines[first].endswith(f"| .50 | .25 | +{short(found.value - 0.5, 2)} |")
    assert sum(line.startswith("- Data of ") for line in lines) == 2, "two batches"
    assert all(line.count("|") == heads.count("|") for line in lines[first - 2 : first + 4])


def test_no_difference_where_the_paper_has_other_spaces(results: dict[str, Result]) -> None:
    assert "difference" not in table(results["nasi-figure1"])[0]
    assert as_csv(results["nasi-figure1"]).splitlines()[0].count("paper_") == 3


def test_plots_come_with_matplotlib(counts: Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    assert write(counts, tmp_path)[3:] == ["result.png", "result.svg"]
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "result.svg").read_text()


# The command


@pytest.fixture
def with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "counts" not in experiments
    monkeypatch.setitem(experiments._members, "counts", Counts())


def test_reproduce_prints_a_table(with_counts: None, images: Path) -> None:
    ran = epochzero("reproduce", "counts", "--networks", 5, "--data", images)
    assert ran.code == 0, ran.err
    assert "params, flops   pearson    5" in ran.out and "paper" in ran.out and "difference" in ran.out
    assert "Space nb201; networks 5, batch_size 2; seed 0" in ran.out
    assert "tf_tas: 5 without a value" in ran.out
    assert "params, tf_tas: none, for a correlation needs at least 3 networks; there are 0." in ran.out


def test_reproduce_prints_json_and_writes_files(
    with_counts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = epochzero("reproduce", "counts", "--quick", "--json", "--out", tmp_path / "new" / "folder", "--seed", 2)
    assert ran.json["settings"] == {"networks": 10, "batch_size": 2}
    assert ran.json["seed"] == 2
    assert "No plot: matplotlib is not installed." in ran.err
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {"result.json", "result.csv", "result.md"}
    assert json.loads((tmp_path / "new" / "folder" / "result.json").read_text()) == ran.json


def test_reproduce_runs_a_recipe_on_given_data(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nasi_figure1.NasiFigure1, "quick", TINY["nasi-figure1"])
    found = epochzero("reproduce", "nasi-figure1", "--quick", "--networks", 3, "--data", images, "--json").json
    assert [row["y"] for row in found["rows"]] == 2 * ["random labels"] + 2 * ["random data"]
    assert "4 of the 40 training samples of images.npz" in found["data"]["true"]


def test_what_cannot_be_reproduced(with_counts: None, tmp_path: Path) -> None:
    assert "No experiment is called 'nasi-table8'. Did you mean 'nasi-table7'?" in refusal("reproduce", "nasi-table8")
    assert "There is no file or folder none.npz" in refusal("reproduce", "counts", "--data", "none.npz")
    assert "The device 'warp' cannot be used here" in refusal("reproduce", "counts", "--device", "warp")
    (tmp_path / "file").write_text("")
    assert "choose another --out" in refusal("reproduce", "counts", "--out", tmp_path / "file")
    unlabelled = save(tmp_path / "plain.npz", x=SMALL_IMAGES)
    with pytest.raises(DataError, match="these data have none"):
        experiments["nasi-figure1"].run(TINY["nasi-figure1"], data=unlabelled)
    for noise in ("pink", "white"):
        assert "give --data FILE with real images and labels" in refusal("reproduce", "nasi-figure1", "--data", noise)
    with pytest.raises(DataError, match="'pink' is random itself"):
        experiments["nasi-figure1"].run(TINY["nasi-figure1"])
    with pytest.raises(UserError, match="at least 3 networks, not 2"):
        Counts().run(replace(Counts.quick, networks=2))


def test_without_labels_every_row_says_so(tmp_path: Path) -> None:
    unlabelled = save(tmp_path / "plain.npz", x=SMALL_IMAGES)
    result = experiments["thesis-table7.4"].run(Settings(networks=3, batch_size=3), data=unlabelled)
    assert all(row.found is None and row.unscored == 3 for row in result.rows)
    assert any("labels" in why for why in result.unscored["grad"])
    assert result.unscored["naswot"] == {}
