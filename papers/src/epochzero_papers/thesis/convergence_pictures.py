"""The plots of a study of convergence, as PNG and SVG. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from epochzero.analysis.pictures import planes
from epochzero.pictures import new_panels, save, style

MEASURES = {"loss": "training loss", "test_loss": "test loss", "test_accuracy": "test accuracy"}
"""labels of the curves"""


def draw(study: Mapping[str, Any], folder: Path, name: str = "convergence") -> list[str]:
    """Draw curves, landscapes and gradient variances of a study; returns the names of the files."""
    files = save(_curves(study), folder, f"{name}_curves")
    labels = {one["name"]: f"{one['name']} ({one['width']:g}c, {one['depth']})" for one in study["networks"]}
    for part, shapes in (("landscape", ("contour", "surface")), ("gradient_variance", ("heat",))):
        if part in study:
            of_part = study[part]
            of_first_seed = dict.fromkeys(of_part["networks"])
            named = {labels[net]: values for net, values in zip(of_first_seed, of_part["values"], strict=False)}
            what = "test loss"
            if part == "gradient_variance":
                what = "standard deviation of a sample's gradient"
                named = {net: [[_root(value) for value in row] for row in rows] for net, rows in named.items()}
            for shape in shapes:
                files += save(planes(named, of_part["axis"], shape, what), folder, f"{name}_{part}_{shape}")
    return files


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


@style()
def _curves(study: Mapping[str, Any]) -> Any:
    """Returns training loss, test loss and test accuracy by epoch and learning rate, means over seeds."""
    networks = study["networks"]
    rates = list(dict.fromkeys(one["rate"] for one in networks))
    figure, panels = new_panels(len(MEASURES) * len(rates), len(rates), 3.4, 2.8)
    epochs = range(1, len(study["curves"]) + 1)
    for place, (measure, rate) in enumerate((m, r) for m in MEASURES for r in rates):
        axes = panels[place]
        for name in dict.fromkeys(one["name"] for one in networks):
            mine = [i for i, one in enumerate(networks) if (one["name"], one["rate"]) == (name, rate)]
            rows = np.array([[epoch[measure][i] for i in mine] for epoch in study["curves"]], np.float64)
            one = networks[mine[0]]
            style = "--" if name.startswith("O") else "-"
            label = f"{name} ({one['width']:g}c, {one['depth']})"
            axes.plot(epochs, rows.mean(1), style, marker=".", markersize=3, label=label, linewidth=1)
        axes.set_title(f"learning rate {rate:g}")
        axes.set_xlabel("epoch")
        axes.set_ylabel(MEASURES[measure])
        axes.xaxis.get_major_locator().set_params(integer=True)
        if measure != "test_accuracy":
            low, high = axes.get_ylim()
            axes.set_ylim(low, min(high, 2 * math.log(10)))
    panels[0].legend()
    return figure
