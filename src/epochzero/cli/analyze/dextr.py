"""`epochzero analyze features`, `curve` and `stability`: the parts of Dextr's score."""

from __future__ import annotations

from dataclasses import asdict
from statistics import mean, stdev
from typing import Annotated

import typer

from epochzero.analysis import pictures
from epochzero.analysis.curves import dextr_of_each, output_curve
from epochzero.analysis.features import Feature, layer_independence
from epochzero.cli.analyze.subjects import Asked, analyzed, explained
from epochzero.cli.console import number


def features(asked: Asked) -> None:
    """Linear independence of the feature maps of each layer, for one sample; give two --arch to compare."""
    subjects = analyzed(asked, batch_size=1)
    with explained():
        x = subjects.batch.part(0)[0].to(asked.device)
        layers = {name: layer_independence(network, x) for name, network in subjects.networks.items()}
    each = {name: [feature._asdict() for feature in of] for name, of in layers.items()}
    lines = {name: [_line(feature) for feature in of] for name, of in layers.items()}
    report = {"networks": each, "data": subjects.batch.about}
    asked.show("features", report, lines, lambda: {"features": pictures.layer_features(layers)})


def _line(feature: Feature) -> str:
    return f"{feature.independence:.4f}  {feature.kind:10} {feature.channels:5} channels  {feature.name}"


def curve(
    asked: Asked,
    points: Annotated[int, typer.Option(min=4, max=10_000, help="On the circle.")] = 100,
    q: Annotated[float, typer.Option("--q", help="Squared radius, divided by the number of inputs.")] = 1.0,
) -> None:
    """The curve of the outputs for inputs on a circle, on its three principal components."""
    subjects = analyzed(asked, batch_size=2)
    with explained():
        curves = {
            name: output_curve(network, subjects.batch, points=points, q=q, seed=asked.seed)
            for name, network in subjects.networks.items()
        }
    lines = {
        name: [
            f"curvature, mean       {number(mean(one.curvature))}",
            f"variance explained    {', '.join(f'{100 * share:.1f} %' for share in one.explained)}",
        ]
        for name, one in curves.items()
    }
    report = {"networks": {name: asdict(one) for name, one in curves.items()}, "data": subjects.batch.about}
    drawn = {name: one.points for name, one in curves.items()}
    asked.show("curve", report, lines, lambda: {"curve": pictures.output_curves(drawn)})


def stability(
    asked: Asked,
    images: Annotated[int, typer.Option(min=2, max=1000, help="Each with a circle of its own.")] = 10,
) -> None:
    """Variation of Dextr's value over images and circles, with the same weights."""
    subjects = analyzed(asked, batch_size=images)
    with explained():
        values = {
            name: dextr_of_each(network, subjects.batch, images, seed=asked.seed)
            for name, network in subjects.networks.items()
        }
    numbers = {name: {"mean": mean(of), "deviation": stdev(of), "values": of} for name, of in values.items()}
    lines = {
        name: [f"dextr, mean           {number(mean(of))}", f"standard deviation    {number(stdev(of))}"]
        for name, of in values.items()
    }
    report = {"networks": numbers, "data": subjects.batch.about}
    asked.show("stability", report, lines, lambda: {"stability": pictures.stability(values)})
