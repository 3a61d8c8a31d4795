"""`epochzero analyze landscape` and `gradient-variance`: the loss and the noise of its gradient, on one plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.analysis import pictures
from epochzero.analysis.gradient_variance import gradient_variance as variance_on_plane
from epochzero.analysis.landscape import RISE, Plane, axis_of, summary
from epochzero.analysis.landscape import landscape as loss_on_plane
from epochzero.analysis.subjects import Alone
from epochzero.cli.analyze_subjects import (
    Across,
    Analyzed,
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
from epochzero.cli.console import number, out, print_json, progress_bar
from epochzero.cli.options import (
    AsJson,
    BatchSize,
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
from epochzero.errors import UserError

Span = Annotated[float, typer.Option("--span", help="How far the plane goes, in lengths of the filters.")]
Norm = Annotated[
    str | None,
    typer.Option("--norm", help="Batch norms: eval (as remembered) or train; default: eval if there were trainings."),
]


def landscape(
    space: SpaceOf = None,
    arch: Archs = None,
    module: Module = None,
    output: Output = None,
    weights: Weights = None,
    span: Span = 1.0,
    across: Across = 21,
    norm: Norm = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """The loss on a plane of two random directions through the weights, normalised filter by filter.

    epochzero analyze landscape --space nb201 --arch '|nor_conv_3x3~0|+...' --weights run --data cifar10.npz --out DIR
    """
    load_plugins(plugin)
    axis_of(span, across)
    sizes = shape(input_shape)
    asked = Asked(space, arch or [], module, output, weights, data, sizes, batch_size, classes, seed, init, device)
    found = analyzed(asked)

    def look(subject: Alone, progress: Callable[[int, int], None]) -> Plane:
        return loss_on_plane(subject, *found.samples, span=span, across=across, seed=seed, progress=progress)

    planes = _planes(found, norm, "landscape", look)
    numbers = {net: dict(summary(plane)) for net, plane in planes.items()}
    _show("landscape", "loss", found, planes, numbers, ("contour", "surface"), seed, out_dir, json)


def gradient_variance(
    space: SpaceOf = None,
    arch: Archs = None,
    module: Module = None,
    output: Output = None,
    weights: Weights = None,
    span: Span = 1.0,
    across: Across = 11,
    parts: Annotated[int, typer.Option("--parts", min=2, help="That the batch is cut into.")] = 8,
    norm: Norm = None,
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    out_dir: Out = None,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """How noisy the gradient of one sample is, on the plane of the loss landscape."""
    load_plugins(plugin)
    axis_of(span, across)
    sizes = shape(input_shape)
    asked = Asked(space, arch or [], module, output, weights, data, sizes, batch_size, classes, seed, init, device)
    found = analyzed(asked)

    def look(subject: Alone, progress: Callable[[int, int], None]) -> Plane:
        return variance_on_plane(
            subject, *found.samples, parts=parts, span=span, across=across, seed=seed, progress=progress
        )

    planes = _planes(found, norm, "gradient variance", look)
    numbers = {net: {"centre": plane.middle(), "steepest": plane.steepest()} for net, plane in planes.items()}
    label = "variance of a sample's gradient"
    _show("gradient_variance", label, found, planes, numbers, ("heat",), seed, out_dir, json)


def _planes(
    found: Analyzed, norm: str | None, what: str, look: Callable[[Alone, Callable[[int, int], None]], Plane]
) -> dict[str, Plane]:
    if norm not in (None, "eval", "train"):
        raise UserError(f"--norm takes eval or train, not {norm!r}.")
    planes = {}
    with progress_bar(what) as bar, explained():
        for name, network in found.networks.items():
            subject = Alone(network, norm or ("eval" if found.trained else "train"))  # type: ignore[arg-type]
            planes[name] = look(subject, lambda done, total: bar(done, total, ""))
    return planes


def _show(
    name: str,
    label: str,
    found: Analyzed,
    planes: dict[str, Plane],
    numbers: Mapping[str, Mapping[str, float]],
    kinds: tuple[str, ...],
    seed: int,
    out_dir: Path | None,
    json: bool,
) -> None:
    whole = {net: asdict(plane) for net, plane in planes.items()}
    report = {"networks": numbers, "planes": whole, "data": found.batch.about, "seed": seed}
    figures = {}
    if out_dir is not None:
        axis = next(iter(planes.values())).axis
        named: Any = {net: plane.values[0] for net, plane in planes.items()}
        figures = {f"{name}_{kind}": pictures.planes(named, axis, kind, label) for kind in kinds}
    files = write(out_dir, name, report, figures)
    if json:
        print_json(report | {"files": files})
        return
    for net, facts in numbers.items():
        out.print(net, style="bold")
        out.print(f"at the weights        {number(facts['centre'])}")
        if "near" in facts:
            out.print(f"at most {RISE:g} more on     {100 * facts['near']:.0f} % of the plane")
        out.print(f"steepest slope        {number(facts['steepest'])}")
    out.print(f"data    {found.batch.about}")
    say_written(files)
