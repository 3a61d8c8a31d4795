"""`epochzero analyze features`, `curve` and `stability`: what Dextr sees of a network."""

from __future__ import annotations

from dataclasses import asdict
from statistics import mean, stdev
from typing import Annotated

import typer

from epochzero.analysis import pictures
from epochzero.analysis.curves import dextr_of_each, output_curve
from epochzero.analysis.features import layer_independence
from epochzero.cli.analyze_subjects import (
    Archs,
    Asked,
    Module,
    Out,
    Output,
    SpaceOf,
    Weights,
    analyzed,
    explained,
    say_written,
    write,
)
from epochzero.cli.console import number, out, print_json
from epochzero.cli.options import (
    AsJson,
    Classes,
    DataSource,
    Device,
    Init,
    InputShape,
    Plugins,
    Seed,
    shape,
)
from epochzero.cli.plugin import load_plugins


def features(
    space: SpaceOf = None,
    arch: Archs = None,
    module: Module = None,
    output: Output = None,
    weights: Weights = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """How linearly independent the feature maps of each layer are, for one sample; give two --arch to compare."""
    load_plugins(plugin)
    sizes = shape(input_shape)
    asked = Asked(space, arch or [], module, output, weights, data, sizes, 1, classes, seed, init, device)
    found = analyzed(asked)
    with explained():
        x = found.batch.part(0)[0].to(device)
        layers = {name: layer_independence(network, x) for name, network in found.networks.items()}
    report = {
        "networks": {name: [feature._asdict() for feature in of] for name, of in layers.items()},
        "data": found.batch.about,
        "seed": seed,
    }
    figures = {} if out_dir is None else {"features": pictures.layer_features(layers)}
    files = write(out_dir, "features", report, figures)
    if json:
        print_json(report | {"files": files})
        return
    for name, of in layers.items():
        out.print(name, style="bold")
        for feature in of:
            out.print(f"{feature.independence:.4f}  {feature.kind:10} {feature.channels:5} channels  {feature.name}")
    say_written(files)


def curve(
    space: SpaceOf = None,
    arch: Archs = None,
    module: Module = None,
    output: Output = None,
    weights: Weights = None,
    points: Annotated[int, typer.Option("--points", min=4, max=10_000, help="On the circle.")] = 100,
    q: Annotated[float, typer.Option("--q", help="Squared radius, divided by the number of inputs.")] = 1.0,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """The curve that the outputs make as the input goes round a circle, on its three principal components."""
    load_plugins(plugin)
    sizes = shape(input_shape)
    asked = Asked(space, arch or [], module, output, weights, data, sizes, 2, classes, seed, init, device)
    found = analyzed(asked)
    with explained():
        curves = {
            name: output_curve(network, found.batch, points=points, q=q, seed=seed)
            for name, network in found.networks.items()
        }
    report = {"networks": {name: asdict(one) for name, one in curves.items()}, "seed": seed}
    drawn = {name: one.points for name, one in curves.items()}
    files = write(out_dir, "curve", report, {} if out_dir is None else {"curve": pictures.output_curves(drawn)})
    if json:
        print_json(report | {"files": files})
        return
    for name, one in curves.items():
        out.print(name, style="bold")
        out.print(f"curvature, mean       {number(mean(one.curvature))}")
        out.print(f"variance explained    {', '.join(f'{100 * share:.1f} %' for share in one.explained)}")
    say_written(files)


def stability(
    space: SpaceOf = None,
    arch: Archs = None,
    module: Module = None,
    output: Output = None,
    weights: Weights = None,
    images: Annotated[int, typer.Option("--images", min=2, max=1000, help="Each with a circle of its own.")] = 10,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """How much Dextr's value changes with the image and the circle, the weights staying as they are."""
    load_plugins(plugin)
    sizes = shape(input_shape)
    asked = Asked(space, arch or [], module, output, weights, data, sizes, images, classes, seed, init, device)
    found = analyzed(asked)
    with explained():
        values = {
            name: dextr_of_each(network, found.batch, images, seed=seed) for name, network in found.networks.items()
        }
    numbers = {name: {"mean": mean(of), "deviation": stdev(of), "values": of} for name, of in values.items()}
    report = {"networks": numbers, "data": found.batch.about, "seed": seed}
    files = write(out_dir, "stability", report, {} if out_dir is None else {"stability": pictures.stability(values)})
    if json:
        print_json(report | {"files": files})
        return
    for name, of in values.items():
        out.print(name, style="bold")
        out.print(f"dextr, mean           {number(mean(of))}")
        out.print(f"standard deviation    {number(stdev(of))}")
    say_written(files)
