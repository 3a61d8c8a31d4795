"""Pictures of what the analyses find, as PNG and SVG. Needs matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.analysis.features import Feature
from epochzero.errors import UserError
from epochzero.pictures import BLUE, ORANGE, new_figure, new_panels, style

Values = Sequence[Sequence[float | None]]
LEVELS = 20
TENFOLD = 10
PANEL = 2.9
"""inches to a side"""
TITLE = 32
"""letters that a panel is wide"""


@style()
def planes(named: Mapping[str, Values], axis: Sequence[float], kind: str, label: str, per_line: int = 4) -> Any:
    """A panel for each network: `contour`, `surface` or `heat`, all on one scale.

    It is logarithmic where positive values differ tenfold: far from the weights the loss grows without end.
    """
    grids = {name: _grid(values) for name, values in named.items()}
    finite = np.concatenate([grid[np.isfinite(grid)] for grid in grids.values()])
    if not len(finite):
        raise UserError("There is no finite value to draw on this plane: take a smaller --span.")
    low, top = float(finite.min()), float(finite.max())
    logarithmic = low > 0 and top > TENFOLD * low
    scale = _scale(low, top, logarithmic)
    projection = {"projection": "3d"} if kind == "surface" else {}
    figure, places = new_panels(len(grids), per_line, PANEL, PANEL, **projection)
    figure.set_figwidth(figure.get_figwidth() + 0.6)  # for the colour bar
    drawn = None
    for axes, (name, grid) in zip(places, grids.items(), strict=True):
        drawn = _drawn(axes, np.where(np.isfinite(grid), grid, top), axis, kind, scale, logarithmic)
        _dress(axes, name)
    if kind != "surface":
        figure.supxlabel("first direction, in lengths of the filters; +: the weights")
        figure.supylabel("second direction")
    bar = figure.colorbar(drawn, ax=places, shrink=0.8, format="%.3g")
    bar.set_label(f"log10 of the {label}" if kind == "surface" and logarithmic else label)
    bar.ax.yaxis.set_minor_formatter("")
    return figure


def _scale(low: float, top: float, logarithmic: bool) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    top = max(top, low + 1e-3 * abs(low) + 1e-12)
    return LogNorm(low, top) if logarithmic else Normalize(low, top)


def _drawn(
    axes: Any, grid: NDArray[np.float64], axis: Sequence[float], kind: str, scale: Any, logarithmic: bool
) -> Any:
    if kind == "surface":
        low, top = (math.log10(end) if logarithmic else end for end in (scale.vmin, scale.vmax))
        a, b = np.meshgrid(axis, axis, indexing="ij")
        axes.set_zlim(low, top)
        height = np.log10(grid) if logarithmic else grid
        return axes.plot_surface(a, b, height, cmap="viridis", vmin=low, vmax=top, rcount=50, ccount=50)
    if kind == "heat":
        half = (axis[1] - axis[0]) / 2
        edges = (axis[0] - half, axis[-1] + half) * 2
        axes.grid(visible=False)
        axes.plot(0, 0, "+", color="white", markersize=8)
        return axes.imshow(grid.T, extent=edges, origin="lower", cmap="viridis", norm=scale)
    spaced = np.geomspace if logarithmic else np.linspace
    axes.set_aspect("equal")
    levels = spaced(scale.vmin, scale.vmax, LEVELS)
    filled = axes.contourf(axis, axis, grid.T, levels=levels, cmap="viridis", norm=scale)
    axes.contour(axis, axis, grid.T, levels=levels, colors="white", linewidths=0.3)
    axes.plot(0, 0, "+", color="white", markersize=8)
    return filled


def _grid(values: Values) -> NDArray[np.float64]:
    return np.array([[np.nan if value is None else value for value in row] for row in values], np.float64)


@style()
def output_curves(named: Mapping[str, Sequence[Sequence[float]]], per_line: int = 4) -> Any:
    """Each network's curve on its three principal components, closed."""
    figure, places = new_panels(len(named), per_line, PANEL, PANEL, projection="3d")
    for axes, (name, points) in zip(places, named.items(), strict=True):
        closed = np.array([*points, points[0]])
        axes.plot(*closed.T, linewidth=1)
        _dress(axes, name)
    figure.supxlabel("the output's three principal components")
    return figure


def _dress(axes: Any, name: str) -> None:
    """A title that fits a panel, and few ticks in small type."""
    axes.set_title("\n".join(textwrap.wrap(name, TITLE)))
    axes.locator_params(nbins=4)


@style()
def layer_features(named: Mapping[str, Sequence[Feature]]) -> Any:
    """1/c of each layer, in the order of the layers."""
    figure = new_figure(8, 3)
    axes = figure.add_subplot()
    for name, features in named.items():
        axes.plot([feature.independence for feature in features], linewidth=0.8, label=name)
    axes.set_xlabel("layer")
    axes.set_ylabel("1/c, independence of its maps")
    figure.legend(loc="outside upper left")
    return figure


@style()
def stability(named: Mapping[str, Sequence[float]]) -> Any:
    """Dextr's value for each image and circle as a dot, a line for each network, with mean and standard deviation."""
    figure = new_figure(6, 1.2 + 0.5 * len(named))
    axes = figure.add_subplot()
    for place, values in enumerate(named.values()):
        axes.plot(values, [place] * len(values), "o", markersize=3, alpha=0.5, color=BLUE)
        spread = np.std(values, ddof=1)
        axes.errorbar(np.mean(values), place, xerr=spread, fmt="D", markersize=4, capsize=4, color=ORANGE)
    axes.set_yticks(range(len(named)), ["\n".join(textwrap.wrap(name, TITLE)) for name in named])
    axes.set_ylim(len(named) - 0.5, -0.5)
    axes.set_xlabel("dextr, over images and circles")
    return figure
