"""Plots of a benchmark as PNG and SVG: scores against accuracies, and proxies in order. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from epochzero.evaluate.bench import BenchOutcome, CaseOutcome
from epochzero.evaluate.figures import BenchRow, Place
from epochzero.pictures import BLUE, INK, PALE, new_figure, new_panels, style

MANY = 2000
"""number of points above which an SVG holds them as an image"""
PER_LINE = 4
"""panels in a row"""
WIDE = 100
"""smallest ratio of the 90 % and 10 % quantiles for a logarithmic axis"""
TAIL = 20
"""smallest ratio of the largest and the median size for an axis that compresses outliers"""


@style()
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
    axes.set_title(f"{outcome.case.name}, n = {len(kept)}: {_spearman(row)}")
    return figure


@style()
def ranking(outcome: BenchOutcome) -> Any:
    """Spearman with its interval for every proxy; a panel for each column of each table."""
    panels = [(case, target) for case in outcome.cases for target in case.figures.ranking]
    proxies = max(len(case.figures.ranking[target]) for case, target in panels)
    figure, places = new_panels(len(panels), PER_LINE, 4.2, 1.1 + 0.26 * proxies)
    for axes, (case, target) in zip(places, panels, strict=True):
        _bars(axes, case.figures.ranking[target])
        axes.set_title(f"{case.case.name}\n{target}")
        axes.set_xlabel("Spearman, 95 % interval; dark: best, or not significantly different")
    return figure


def _bars(axes: Any, places: Sequence[Place]) -> None:
    axes.set_yticks(range(len(places)), [place.row.proxy for place in places])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    for height, place in enumerate(places):
        quality = place.row.quality
        if quality.spearman is None or quality.spearman_ci is None:
            axes.text(0, height, " none", va="center")
            continue
        low, high = quality.spearman_ci
        axes.barh(height, quality.spearman, color=BLUE if place.ties_with_first else PALE)
        axes.plot([low, high], [height, height], color=INK, linewidth=1)


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
