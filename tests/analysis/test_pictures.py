"""Pictures: every network gets its panel and its points, values that are none do not stop them."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import LogNorm

from epochzero.analysis import pictures
from epochzero.analysis.features import Feature
from epochzero.errors import UserError

AXIS = [-1.0, 0.0, 1.0]
BOWL: list[list[float | None]] = [[3.0, 2.0, 3.0], [2.0, 1.0, 2.0], [3.0, 2.0, 1e9]]
HOLED: list[list[float | None]] = [[None, 2.0, 3.0], [2.0, 1.5, 2.0], [3.0, 2.0, 4.0]]


@pytest.mark.parametrize("kind", ["contour", "surface", "heat"])
def test_a_panel_for_each_network(kind: str, tmp_path: Path) -> None:
    figure = pictures.planes({"wide": BOWL, "deep": HOLED}, AXIS, kind, "loss")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["wide", "deep"] and len(titles) == 3, "and the colour bar"
    figure.savefig(tmp_path / "a.png")


def test_far_values_do_not_flatten_the_rest() -> None:
    figure = pictures.planes({"wide": BOWL}, AXIS, "heat", "loss")
    (image,) = figure.axes[0].images
    assert image.get_clim() == (1.0, 1e9)
    assert isinstance(image.norm, LogNorm)
    below = [[0.0 - number, 1.0, 2.0] for number in range(3)]
    (image,) = pictures.planes({"wide": below}, AXIS, "heat", "loss").axes[0].images
    assert not isinstance(image.norm, LogNorm), "no logarithm of what is below zero"
    (image,) = pictures.planes({"wide": HOLED}, AXIS, "heat", "loss").axes[0].images
    assert not isinstance(image.norm, LogNorm), "nor of what hardly differs"


@pytest.mark.parametrize("kind", ["contour", "heat"])
def test_a_plane_says_what_its_axes_are_and_where_the_weights_lie(kind: str) -> None:
    figure = pictures.planes({"wide": BOWL}, AXIS, kind, "loss")
    (mark,) = figure.axes[0].lines
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (0, 0)
    assert "first direction" in figure.get_supxlabel() and figure.get_supylabel() == "second direction"


def test_nothing_finite_is_a_sentence() -> None:
    with pytest.raises(UserError, match="smaller --span"):
        pictures.planes({"a": [[None] * 3] * 3}, AXIS, "heat", "loss")


def test_lines_have_all_points() -> None:
    curve = [[float(i), 0.0, 1.0] for i in range(5)]
    (line,) = pictures.output_curves({"net": curve}).axes[0].lines
    assert len(line.get_data_3d()[0]) == 6, "closed"
    features = [Feature(f"l{i}", "conv", 4, 0.1 * i) for i in range(7)]
    assert len(pictures.layer_features({"net": features}).axes[0].lines[0].get_xdata()) == 7
    axes = pictures.stability({"wide": [1.0, 2.0, 3.0], "deep": [2.0, 2.5, 3.0]}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["wide", "deep"]
    dots = [line.get_xdata().tolist() for line in axes.lines if len(line.get_xdata()) == 3]
    means = [bar.lines[0].get_xdata().tolist() for bar in axes.containers]
    assert dots == [[1, 2, 3], [2, 2.5, 3]] and means == [[2.0], [2.5]]


def test_long_names_do_not_run_into_each_other() -> None:
    name = "|avg_pool_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|"
    curve = [[float(i), 0.0, 1.0] for i in range(5)]
    for axes in (
        pictures.output_curves({name: curve}).axes[0],
        pictures.planes({name: BOWL}, AXIS, "heat", "x").axes[0],
    ):
        lines = axes.get_title().splitlines()
        assert "".join(lines) == name and max(map(len, lines)) <= pictures.TITLE
