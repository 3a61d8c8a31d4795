"""The front of a search as a plot. Needs matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from epochzero.evaluate.plots import MANY, is_wide
from epochzero.objectives.goals import LATENCY, Goal
from epochzero.pictures import BLUE, PALE, new_counts, new_panels, style
from epochzero.study.front import Front

COUNTED = ("params", "flops")


@style()
def drawn(front: Front) -> Any:
    """The front among all evaluated networks: the first goal on the vertical axis, a panel for each of the others."""
    first, *others = front.goals.goals
    everything = front.values
    chosen = np.array([member.values for member in front.members]).reshape(-1, 1 + len(others))
    figure, panels = new_panels(len(others), len(others), 4.6, 3.8)
    for number, (axes, goal) in enumerate(zip(panels, others, strict=True), 1):
        x, y = everything[:, number], everything[:, 0]
        axes.scatter(x, y, s=6, linewidths=0, color=PALE, rasterized=len(x) > MANY, label="evaluated")
        order = np.argsort(chosen[:, number])
        line = "-" if len(others) == 1 else ""
        x_front, y_front = chosen[order, number], chosen[order, 0]
        axes.plot(x_front, y_front, f"o{line}", markersize=4, linewidth=1, color=BLUE, label="front")
        if is_wide(x):
            axes.set_xscale("log")
        if is_wide(y):
            axes.set_yscale("log")
        for axis, of_axis in ((axes.xaxis, goal), (axes.yaxis, first)):
            axis.set_label_text(_label(of_axis))
            if of_axis.proxy.text in COUNTED:
                axis.set_major_formatter(new_counts())
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _label(goal: Goal) -> str:
    unit = ", ms" if goal.proxy == LATENCY else ""
    return f"{goal.proxy.text}{unit} ({'higher' if goal.higher else 'lower'} is better)"
