"""Plots of a benchmark as PNG and SVG: scores against accuracies, and proxies in order. Needs matplotlib."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epochzero.errors import UserError
from epochzero.evaluate.bench import BenchOutcome, CaseOutcome
from epochzero.evaluate.figures import BenchRow, Place

FORMATS = (".png", ".svg")
MANY = 2000
"""number of points above which an SVG holds them as an image"""
PER_LINE = 4
"""panels in a row"""
WIDE = 100
"""smallest ratio of the 90 % and 10 % quantiles for a logarithmic axis"""
TAIL = 20
"""smallest ratio of the largest and the median size for an axis that compresses outliers"""
BAR, LEVEL_BAR = "#b8c4d6", "#2f6db3"


def new_figure(width: float, height: float) -> Any:
    """A figure of this size in inches; UserError without matplotlib."""
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise UserError("Plots need matplotlib: pip install 'epochzero[plots]'.") from None
    return figures.Figure(figsize=(width, height), layout="constrained")


def new_counts() -> Any:
    """A formatter of ticks as 150 M."""
    return importlib.import_module("matplotlib.ticker").EngFormatter()


def new_panels(count: int, per_line: int, width: float, height: float, **how: Any) -> tuple[Any, list[Any]]:
    """A figure of `count` panels, `per_line` in a row, each of this size in inches; and their axes."""
    across = min(per_line, count)
    down = math.ceil(count / across)
    figure = new_figure(width * across, height * down)
    return figure, [figure.add_subplot(down, across, place, **how) for place in range(1, count + 1)]


def save(figure: Any, folder: Path, name: str) -> list[str]:
    """Writes the figure in every format; returns the names of the files."""
    names = [name + ending for ending in FORMATS]
    for file in names:
        figure.savefig(folder / file, dpi=150)
    return names


def scatter(outcome: CaseOutcome, row: BenchRow) -> Any:
    """The first repeat's score of each network against the target, coloured by parameters if they are known."""
    sample, scores = outcome.sample, outcome.merits[row.proxy][0]
    kept = [place for place, score in enumerate(scores) if score.ok and math.isfinite(score.value)]
    x = np.array([scores[place].value for place in kept])
    y = sample.truths[row.target][kept]
    figure = new_figure(4.4, 3.6)
    axes = figure.add_subplot()
    params = sample.sizes.get("params")
    colour = {} if params is None or not kept else {"c": params[kept] / 1e6, "cmap": "viridis"}
    points = axes.scatter(x, y, s=8, linewidths=0, alpha=0.8, rasterized=len(kept) > MANY, **colour)
    if colour:
        figure.colorbar(points, label="parameters, millions")
    spread_out(axes, x)
    lower = {proxy.text for proxy in outcome.case.tasks[0].proxies if not proxy.higher_is_better}
    sign = "-" if row.proxy in lower else ""
    repeat = ", first repeat" if row.quality.repeats > 1 else ""
    axes.set_xlabel(f"{sign}{row.proxy}{repeat}")
    axes.set_ylabel(", ".join(filter(None, (row.target, sample.units[row.target]))))
    axes.set_title(f"{outcome.case.name}, n = {len(kept)}: {_spearman(row)}", fontsize=8)
    return figure


def ranking(outcome: BenchOutcome) -> Any:
    """Spearman with its interval for every proxy; a panel for each column of each table."""
    panels = [(case, target) for case in outcome.cases for target in case.figures.ranking]
    proxies = max(len(case.figures.ranking[target]) for case, target in panels)
    figure, places = new_panels(len(panels), PER_LINE, 4.2, 1.1 + 0.26 * proxies)
    for axes, (case, target) in zip(places, panels, strict=True):
        _bars(axes, case.figures.ranking[target])
        axes.set_title(f"{case.case.name}\n{target}", fontsize=8)
        axes.set_xlabel("Spearman, 95 % interval; dark: best, or not significantly different", fontsize=7)
    return figure


def _bars(axes: Any, places: Sequence[Place]) -> None:
    axes.set_yticks(range(len(places)), [place.row.proxy for place in places], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    for height, place in enumerate(places):
        quality = place.row.quality
        if quality.spearman is None or quality.spearman_ci is None:
            axes.text(0, height, " none", va="center", fontsize=7)
            continue
        low, high = quality.spearman_ci
        axes.barh(height, quality.spearman, color=LEVEL_BAR if place.ties_with_first else BAR)
        axes.plot([low, high], [height, height], color="black", linewidth=1)


def _spearman(row: BenchRow) -> str:
    quality = row.quality
    if quality.spearman is None or quality.spearman_ci is None:
        return "no correlation"
    low, high = quality.spearman_ci
    repeats = f", {quality.repeats} repeats" if quality.repeats > 1 else ""
    return f"Spearman {quality.spearman:.3f} [{low:.3f}, {high:.3f}]{repeats}"


def spread_out(axes: Any, x: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Scales the axis so that a few large values do not compress all others."""
    sizes = np.abs(x[np.isfinite(x)])
    middle = float(np.median(sizes)) if len(sizes) else 0.0
    tailed = middle > 0 and sizes.max() > TAIL * middle
    if is_wide(x) or (tailed and x.min() > 0):
        axes.set_xscale("log")
    elif tailed:
        axes.set_xscale("symlog", linthresh=middle)
        axes.xaxis.get_major_locator().set_params(numticks=5)


def is_wide(x: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """True for positive scores whose range is too wide for a linear axis."""
    if not len(x) or x.min() <= 0:
        return False
    low, high = np.quantile(x, [0.1, 0.9])
    return bool(high > WIDE * low)
