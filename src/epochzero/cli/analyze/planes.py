"""`epochzero analyze landscape` and `gradient-variance`: the loss and the noise of its gradient, on one plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from torch import Tensor

from epochzero.analysis import pictures
from epochzero.analysis.gradient_variance import check_parts
from epochzero.analysis.gradient_variance import gradient_variance as variance
from epochzero.analysis.landscape import RISE, Plane, axis_of, on_plane
from epochzero.analysis.subjects import SingleSubject, Weights
from epochzero.cli.analyze.subjects import Across, Analyzed, Asked, analyzed, explained
from epochzero.cli.console import number, progress_bar
from epochzero.cli.options import BatchSize
from epochzero.errors import UserError

Span = Annotated[float, typer.Option(help="Half-width of the plane, in lengths of the filters.")]
Norm = Annotated[
    str | None,
    typer.Option(help="Batch norms: eval (running statistics) or train; default: eval for trained networks."),
]
Value = Callable[[SingleSubject, Weights], Tensor]


def landscape(
    asked: Asked, span: Span = 1.0, across: Across = 21, norm: Norm = None, batch_size: BatchSize = 64
) -> None:
    """The loss on a plane of two random directions through the weights, normalised filter by filter.

    epochzero analyze landscape --space nb201 --arch '|nor_conv_3x3~0|+...' --weights run --data cifar10.npz --out DIR
    """
    axis, subjects = axis_of(span, across), analyzed(asked, batch_size)
    x, y = subjects.samples
    planes = _planes(asked, subjects, norm, axis, lambda subject, weights: subject.losses(weights, x, y))
    numbers = {net: {"centre": p.middle, "near": p.near, "steepest": p.steepest} for net, p in planes.items()}
    _show(asked, "landscape", "loss", subjects, planes, numbers, ("contour", "surface"))


def gradient_variance(
    asked: Asked,
    span: Span = 1.0,
    across: Across = 11,
    parts: Annotated[int, typer.Option(min=2, help="That the batch is cut into.")] = 8,
    norm: Norm = None,
    batch_size: BatchSize = 64,
) -> None:
    """Variance of the gradient of one sample, on the plane of the loss landscape."""
    axis, subjects = axis_of(span, across), analyzed(asked, batch_size)
    x, y = subjects.samples
    check_parts(len(x), parts)
    planes = _planes(asked, subjects, norm, axis, lambda subject, weights: variance(subject, weights, x, y, parts))
    numbers = {net: {"centre": plane.middle, "steepest": plane.steepest} for net, plane in planes.items()}
    _show(asked, "gradient_variance", "variance of a sample's gradient", subjects, planes, numbers, ("heat",))


def _planes(
    asked: Asked, subjects: Analyzed, norm: str | None, axis: Sequence[float], value: Value
) -> dict[str, Plane]:
    if norm not in (None, "eval", "train"):
        raise UserError(f"--norm takes eval or train, not {norm!r}.")
    planes = {}
    with progress_bar("plane") as bar, explained():
        for name, network in subjects.networks.items():
            subject = SingleSubject(network, norm or ("eval" if subjects.trained else "train"))  # type: ignore[arg-type]
            planes[name] = on_plane(subject, axis, asked.seed, partial(value, subject), bar)
    return planes


def _show(
    asked: Asked,
    what: str,
    label: str,
    subjects: Analyzed,
    planes: Mapping[str, Plane],
    numbers: Mapping[str, Mapping[str, float]],
    kinds: Sequence[str],
) -> None:
    def figures() -> dict[str, Any]:
        axis = next(iter(planes.values())).axis
        named: Any = {net: plane.values[0] for net, plane in planes.items()}
        return {f"{what}_{kind}": pictures.planes(named, axis, kind, label) for kind in kinds}

    whole = {net: asdict(plane) for net, plane in planes.items()}
    report = {"networks": numbers, "planes": whole, "data": subjects.batch.about}
    asked.show(what, report, {net: _lines(facts) for net, facts in numbers.items()}, figures)


def _lines(facts: Mapping[str, float]) -> list[str]:
    near = [f"at most {RISE:g} more on     {100 * facts['near']:.0f} % of the plane"] if "near" in facts else []
    at, steepest = number(facts["centre"]), number(facts["steepest"])
    return [f"at the weights        {at}", *near, f"steepest slope        {steepest}"]
