"""Dextr's Figures 2 and 3 as experiments, in a small form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epochzero.errors import DataError, UserError
from epochzero.registry import experiments
from tests.command import CHEAP, CUT
from tests.papers.small import small_images

POOLED = "|none~0|+|none~0|none~1|+|avg_pool_3x3~0|none~1|none~2|"
CONV = "|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|"
WIDE = "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [(CHEAP, 60.1, 61), (CUT, 10, 10), (POOLED, 49, 62.9), (CONV, 89.9, 89.4), (WIDE, 70, 75)]
    text = "\n".join(["arch_str,cifar10_test,cifar10_val", *(f"{a},{b},{c}" for a, b, c in rows)])
    (tmp_path / "nb201.csv").write_text(text + "\n")
    small_images(tmp_path, "cifar10.npz")
    return tmp_path


def test_figure_2_takes_networks_across_the_accuracies(folder: Path) -> None:
    figure = experiments["dextr-figure2"]
    result = figure.run(replace(figure.quick, networks=3, batch_size=2), folder=folder)
    sample = result.samples["nb201"]
    assert list(sample.archs) == [POOLED, WIDE, CONV] and sample.values["test accuracy %"] == [49, 70, 89.9]
    means, spreads = sample.values["mean over inputs"], sample.values["std over inputs"]
    rows = {(row.x, row.y): row for row in result.rows}
    assert rows["mean over inputs", "most"].found is not None
    assert rows["mean over inputs", "most"].found.value == max(v for v in means if v is not None)
    assert rows["mean over inputs", "most"].paper == 2.34
    assert all(value is not None and value > 0 for value in spreads)
    assert rows["mean over inputs", "test accuracy %"].statistic == "spearman"
    with pytest.raises(UserError, match="at least 2 of them"):
        figure.run(replace(figure.quick, batch_size=1), folder=folder)


def test_a_network_without_a_path_is_counted(folder: Path) -> None:
    figure = experiments["dextr-figure2"]
    result = figure.run(replace(figure.quick, networks=4, batch_size=2, low=10), folder=folder)
    assert result.rows[0].unscored == 1 and CUT not in result.samples["nb201"].archs
    assert "no path connects them" in next(iter(result.samples["nb201"].unscored["mean over inputs"]))


def test_figure_3_takes_the_two_networks_of_the_paper(folder: Path) -> None:
    result = experiments["dextr-figure3"].run(folder=folder)
    values = result.samples["nb201"].values
    assert list(values) == [f"validation accuracy {accuracy} %" for accuracy in ("89.40", "75.00", "62.90")]
    assert len({len(of_network) for of_network in values.values()}) == 2, "CONV has more layers than POOLED"
    means = [row for row in result.rows if row.statistic == "mean over layers"]
    assert all(row.found is not None and 0 < row.found.value < 1 for row in means)


def test_missing_data_are_named(tmp_path: Path) -> None:
    for name in ("dextr-figure2", "dextr-figure3"):
        assert experiments[name].status(tmp_path) == "needs data"
        with pytest.raises(DataError, match=rf"{name} needs data that are not there: put .*nb201"):
            experiments[name].run(folder=tmp_path)
