"""The plot of calibration: rates of clicks against predicted probabilities, bin by bin. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epochzero.pictures import BLUE, LINE, ORANGE, new_figure, save, style

NAME = "calibration"


@style()
def drawn(curves: Mapping[str, Mapping[str, Any]]) -> Any:
    """A curve for each name, of `Calibration` as JSON fields."""
    figure = new_figure(4.2, 3.6)
    axes = figure.add_subplot()
    most = max((max(one["predicted"], one["rate"]) for curve in curves.values() for one in curve["bins"]), default=1)
    axes.plot([0, most], [0, most], color=LINE, label="perfect")
    for (name, curve), colour in zip(curves.items(), (BLUE, ORANGE), strict=False):
        points = [[one[key] for one in curve["bins"]] for key in ("predicted", "rate")]
        axes.plot(*points, marker="o", color=colour, label=f"{name}, error {curve['error']:.4f}")
    axes.set_xlabel("predicted probability of a click")
    axes.set_ylabel("rate of clicks")
    axes.legend()
    return figure


def plotted(curves: Mapping[str, Mapping[str, Any]], folder: Path) -> list[str]:
    """Writes calibration.png and .svg; returns their names."""
    return save(drawn(curves), folder, NAME)
