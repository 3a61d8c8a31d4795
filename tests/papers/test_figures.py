"""Figures other than correlations: bins of a metric, networks below a constraint, training losses."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from epochzero.registry import experiments, spaces
from epochzero.types import Score
from epochzero_papers.dextr.figure1 import CURVES, Convergence
from epochzero_papers.harness.correlations import Extent
from epochzero_papers.harness.report import plot
from epochzero_papers.nasi.table3 import CONDITIONED, TRACE, below_the_mean
from epochzero_papers.thesis.figure7_4 import CORRELATION, ERROR, in_bins
from tests.papers.small import small_images

pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six connected networks, and images that stand for CIFAR-10."""
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    space, rng = spaces["nb201"], Random(6)
    drawn = {space.text(("nor_conv_3x3", *space.sample(rng)[1:-1], "nor_conv_1x1")) for _ in range(20)}
    rows = [[arch, round(50 + 40 * rng.random(), 2)] for arch in sorted(drawn)[:6]]
    with (folder / "nb201.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["arch_str", "cifar10_val"], *rows])
    return folder


def work(bins: int) -> Any:
    return SimpleNamespace(settings=SimpleNamespace(bins=bins), seed=0)


def test_bins_are_those_of_sorted_networks() -> None:
    rng = np.random.default_rng(1)
    metric, kappa, error = rng.normal(size=23), rng.normal(size=23), rng.uniform(5, 40, 23)
    scores = [Score(float(value)) for value in metric]
    scores[7] = Score.degenerate("none")
    rows, sample = in_bins("snip", scores, [Score(float(value)) for value in kappa], error, work(4))
    kept = [i for i in np.argsort(metric) if i != 7]
    groups = np.array_split(kept, 4)  # of 6, 6, 5, 5; the bins of midranks have the same of 22
    sizes = [row.found.n for row in rows if row.y == ERROR and row.found is not None]
    assert sum(sizes) == 22 and max(sizes) - min(sizes) <= 1
    groups = np.split(np.array(kept), np.cumsum(sizes)[:-1])
    found = {(row.y, row.statistic): row.found for row in rows}
    for number, group in enumerate(groups, start=1):
        mean, order = found[ERROR, f"bin {number}"], found[CORRELATION, f"bin {number}"]
        assert mean is not None and mean.value == pytest.approx(error[group].mean())
        assert order is not None and order.value == pytest.approx(spearmanr(kappa[group], -error[group]).statistic)
    assert sample.values["snip, mean"] == pytest.approx([metric[group].mean() for group in groups])
    assert {row.unscored for row in rows} == {1}


def test_a_bin_of_two_networks_has_no_correlation() -> None:
    scores = [Score(float(i)) for i in range(4)]
    rows, sample = in_bins("snip", scores, scores, np.array([9.0, 8.0, 7.0, 6.0]), work(2))
    assert [row.why for row in rows if row.y == CORRELATION] == [
        "a correlation needs at least 3 networks; there are 2"
    ] * 2
    assert sample.values[CORRELATION] == [None, None] and sample.values[ERROR] == [8.5, 6.5]


def test_the_constraint_is_the_mean() -> None:
    scores = [Score(1.0), Score(2.0), Score(9.0), Score.degenerate("cut off"), Score(4.0)]
    kept = below_the_mean(scores)  # the mean is 4
    assert [score.value for score in kept if score.ok] == [1.0, 2.0, 4.0]
    assert kept[3].why == "cut off" and kept[2].why.startswith("its trace norm is above nu")
    assert below_the_mean([Score.degenerate("cut off")])[0].why == "cut off"


def test_table_3_has_figures_for_the_conditioned_norm() -> None:
    table = experiments["nasi-table3"]
    assert table.spearman[CONDITIONED] == (0.62, 0.74, 0.76)
    assert [objective.text for objective in table.objectives][-1] == TRACE


def test_losses_of_both_ends_are_measured(folder: Path, tmp_path: Path) -> None:
    settings = Convergence(networks=6, batch_size=4, ends=2, epochs=2, images=16)
    result = experiments["dextr-figure1"].run(settings, folder=folder, store=tmp_path / "run.db")
    losses = {(row.y, row.statistic): row.found for row in result.rows if row.sample == CURVES}
    assert len(losses) == 4 and all(found is not None and 0 < found.value < 20 for found in losses.values())
    assert result.samples[CURVES].values["epoch"] == [1.0, 2.0]
    assert len(list((tmp_path / "run.db.training").iterdir())) == 4, "two networks of each end"
    assert not any("step" in sentence for sentence in result.left_out)
    if pytest.importorskip("matplotlib"):
        assert plot(result, tmp_path) == ["result.png", "result.svg"]


def test_noise_is_not_trained_on(folder: Path) -> None:
    settings = replace(experiments["dextr-figure1"].quick, networks=3, batch_size=2)
    result = experiments["dextr-figure1"].run(settings, folder=folder, data="white")
    assert CURVES not in result.samples
    assert "Losses in training are left out: noise has nothing to be learnt." in result.left_out
    assert isinstance(settings, Extent)
