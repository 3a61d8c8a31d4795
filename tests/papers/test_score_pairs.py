"""Correlations between scores: compared with slow versions, and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap, kendalltau, pearsonr, spearmanr

from epochzero import data
from epochzero.errors import DataError, DegenerateError
from epochzero.registry import experiments, proxies, spaces
from epochzero.stats import pearson
from epochzero.store import Store, export
from epochzero.study.task import Task
from epochzero_papers.harness.base import Result, Settings
from epochzero_papers.harness.score_pairs import ScorePairs
from epochzero_papers.nasi import figure1 as nasi_figure1
from epochzero_papers.nasi import table7 as nasi_table7
from epochzero_papers.nasi.one_shot_spaces import ONE_SHOT
from epochzero_papers.nasi.table7 import Sizes
from epochzero_papers.thesis import table7_4 as thesis_table7_4
from tests.data.data_files import labelled
from tests.papers.small import Counts, small_images

TINY: dict[str, Settings] = {
    "nasi-figure1": Settings(networks=3, batch_size=4),
    "nasi-table7": Sizes(networks=3, batch_size=8, samples=2),
    "thesis-table7.4": Settings(networks=3, batch_size=4),
    "thesis-figure7.2": Settings(networks=3, batch_size=4),
}
pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_images(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def results(images: Path) -> dict[str, Result]:
    """In one space each: networks of NAS-Bench-101 take their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nasi_figure1.NasiFigure1, "spaces", {"S1": "nb1shot1_s1"})
        patch.setattr(nasi_table7.NasiTable7, "spaces", {"S1": "nb1shot1_s1"})
        patch.setattr(thesis_table7_4.ThesisTable74, "spaces", {"nb201": "nb201"})
        patch.setattr(nasi_table7, "SUM", nasi_table7.SUM[:1])
        patch.setattr(nasi_table7, "MINI_BATCH", {b: row[:1] for b, row in nasi_table7.MINI_BATCH.items()})
        return {name: experiments[name].run(settings, data=images) for name, settings in TINY.items()}


@pytest.fixture(scope="module")
def counts(images: Path) -> Result:
    return Counts().run(Settings(networks=12, batch_size=2), seed=3, data=images)


# The recipes


def test_every_recipe_runs_and_quotes_its_paper(results: dict[str, Result]) -> None:
    connections = {name for name in experiments if isinstance(experiments[name], ScorePairs)} - {"dextr-table5"}
    assert set(results) == connections, "a recipe without tiny settings here"
    for name, result in results.items():
        recipe = experiments[name]
        assert recipe.name == result.experiment == name
        assert result.about.endswith(".") and result.about == recipe.about
        assert recipe.quick.networks < recipe.full.networks
        assert any(row.paper for row in result.rows)
        assert {row.sample for row in result.rows} == set(result.samples)
        for row in result.rows:
            assert row.paper is None or -1 <= row.paper <= 1
            if row.found is not None:
                assert -1 <= row.found.low <= row.found.high <= 1
                assert row.found.n == 3 - row.unscored
        for sample in result.samples.values():
            assert len(sample.archs) == len(set(sample.archs)) == 3
            assert {row.x for row in result.rows} | {row.y for row in result.rows} == set(sample.columns)


def test_the_thesis_compares_thirteen_pairs_three_ways(results: dict[str, Result]) -> None:
    assert len(results["thesis-table7.4"].rows) == 39
    printed = {figure[:3]: figure.value for figure in experiments["thesis-table7.4"].quoted}
    assert len(printed) == 2 * 39
    assert printed["nb201: grad", "trace", "pearson"] == 0.98
    assert printed["nb201: knas", "grasp", "spearman"] == 0.87
    assert printed["nb201: fisher", "trace", "kendall"] == 0.69
    assert printed["nb101: fisher", "trace", "spearman"] == 0.97


def test_a_figure_of_the_table_has_its_spearmans(results: dict[str, Result]) -> None:
    table, figure = results["thesis-table7.4"], results["thesis-figure7.2"]
    assert [row.name for row in figure.rows] == ["grad, trace", "snip, trace", "grasp, trace"]
    same = {row.name: row for row in table.rows if row.statistic == "spearman"}
    assert [same[row.name] for row in figure.rows] == figure.rows


def test_nasi_prints_mini_batches_up_to_the_largest_and_the_sum(results: dict[str, Result]) -> None:
    pearsons = [row for row in results["nasi-table7"].rows if row.statistic == "pearson"]
    assert [(row.x, row.y) for row in pearsons] == [("exact", "b = 4"), ("exact", "b = 8"), ("exact", "sum")]
    assert [row.paper for row in pearsons] == [0.74, 0.80, 0.88]
    assert all(row.paper is None for row in results["nasi-table7"].rows if row.statistic == "spearman")
    printed = {(figure.x, figure.y): figure.value for figure in experiments["nasi-table7"].quoted}
    assert [printed[f"{space}: exact", "b = 4"] for space in ONE_SHOT] == [0.74, 0.82, 0.66]
    assert [printed[f"{space}: exact", "sum"] for space in ONE_SHOT] == [0.88, 0.92, 0.87]
    assert nasi_table7.NasiTable7.full.batches == [4, 8, 16, 32, 64, 128]


def slow_gradients(name: str, arch: str, images: Path, size: int, of: Callable[[Any, Any], Any]) -> torch.Tensor:
    """One row for each number that `of(logits, labels)` has: its gradient over everything trainable."""
    batch = data.load(images, size=size, parts=1)
    x, y = labelled(batch)
    space = spaces[name]
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

    one_shot = results["nasi-table7"].samples["S1"].archs
    assert one_shot == results["nasi-figure1"].samples["S1"].archs, "one seed, one sample"
    nb201 = results["thesis-table7.4"].samples["nb201"].archs
    s1, cell = partial(slow_gradients, "nb1shot1_s1", one_shot[0]), partial(slow_gradients, "nb201", nb201[0])
    expected = {
        ("nasi-table7", "S1", "exact"): s1(images, 2, logits).square().sum(),
        ("nasi-table7", "S1", "sum"): s1(images, 2, loss).square().sum(),
        ("nasi-table7", "S1", "b = 8"): s1(images, 8, loss).mean(0).square().sum(),
        ("nasi-figure1", "S1", "true"): s1(images, 4, loss).mean(0).square().sum(),
        ("thesis-table7.4", "nb201", "trace"): (cell(images, 4, label).square().sum() / 4).sqrt(),
        ("thesis-table7.4", "nb201", "knas"): cell(images, 4, label).mean(0).norm(),
    }
    for (experiment, sample, name), value in expected.items():
        found = results[experiment].samples[sample].values[name][0]
        assert found == pytest.approx(float(value), rel=1e-3), name


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
    result = results["thesis-table7.4"].samples["nb201"]
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
    sample = counts.samples["nb201"]
    x, y = sample.values["params"], sample.values["flops"]
    expected: dict[str, Any] = {"pearson": pearsonr, "spearman": spearmanr, "kendall": kendalltau}
    for row in counts.rows[:3]:
        assert row.found is not None
        assert row.found.value == pytest.approx(expected[row.statistic](x, y).statistic)
        assert row.difference == pytest.approx(row.found.value - 0.5)
    space = spaces["nb201"]
    assert x == [space.plan(space.parse(arch), 3, (3, 8, 8)).params / 1e6 for arch in sample.archs]


def test_a_column_without_values_says_why(counts: Result) -> None:
    row = counts.rows[3]
    assert (row.found, row.difference, row.unscored) == (None, None, 12)
    assert row.why == "a correlation needs at least 3 networks; there are 0"
    assert sum(counts.samples["nb201"].unscored["tf_tas"].values()) == 12
    assert counts.samples["nb201"].unscored["params"] == {}


def test_another_seed_is_another_sample(counts: Result, images: Path) -> None:
    settings = Settings(networks=12, batch_size=2)
    again, other = (Counts().run(settings, seed=seed, data=images) for seed in (3, 4))
    assert (again.samples, again.rows) == (counts.samples, counts.rows)
    assert set(other.samples["nb201"].archs) != set(counts.samples["nb201"].archs)


def test_given_scores_are_correlated_as_they_are(
    tmp_path: Path, counts: Result, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "run.db") as store:
        Counts().run(Settings(networks=12, batch_size=2), seed=3, data=images, store=store.path)
        export(store, tmp_path / "scores.csv")
    monkeypatch.setattr(Task, "score", None)
    again = Counts().run(Settings(networks=99, batch_size=2), seed=3, data=images, scores=[tmp_path / "scores.csv"])
    sample, before = again.samples["nb201"], counts.samples["nb201"]
    place = [before.archs.index(arch) for arch in sample.archs]
    assert sorted(place) == list(range(12))
    assert sample.values["flops"] == [before.values["flops"][i] for i in place]
    assert [row.found.value for row in again.rows[:3] if row.found] == pytest.approx(
        [row.found.value for row in counts.rows[:3] if row.found]
    )
    with pytest.raises(DataError, match=r"counts cannot be made of these scores\. nb201 is left out: the given scores"):
        Counts().run(Settings(networks=5, batch_size=2), seed=4, data=images, scores=[tmp_path / "scores.csv"])


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
    assert (result.rows, result.samples) == (counts.rows, counts.samples)
    Counts().run(settings, seed=3, data=images, store=store)
    assert len(scored) == 24
