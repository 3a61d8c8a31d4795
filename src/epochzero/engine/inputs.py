"""The weights, inputs and labels of a pass, on one device and in one precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine.circle import circle
from epochzero.engine.failure import PassFailedError
from epochzero.engine.network import Network
from epochzero.engine.passes import Pass
from epochzero.errors import DataError
from epochzero.plan import generator
from epochzero.plan.ops.base import Jet
from epochzero.types import Origin

OF_INPUTS = frozenset(("input_gradients", "block_gradients"))
"""reads of gradients that reach the inputs"""
NEXT_DRAW = 1_000_003
"""the distance between the seeds of repeated initialisations"""


def pass_origin(run: Pass, seed: int) -> Origin | None:
    """Returns the origin of a pass's weights; None for the network's own."""
    return Origin(run.init, seed + NEXT_DRAW * run.draw) if run.init else None


def pass_weights(network: Network, run: Pass, seed: int) -> dict[str, Tensor]:
    """Returns the network's own weights, or new ones, in the precision and form of the pass."""
    origin = pass_origin(run, seed)
    return in_form(network.weights if origin is None else network.redrawn(origin), run)


def in_form(weights: Mapping[str, Tensor], run: Pass) -> dict[str, Tensor]:
    """Returns the weights in the pass's precision, as absolute values if the pass asks for them."""
    dtype = getattr(torch, run.dtype)
    formed = {name: w if w.dtype == dtype or not w.is_floating_point() else w.to(dtype) for name, w in weights.items()}
    formed = {name: w.detach() if w.requires_grad else w for name, w in formed.items()}
    return {name: w.abs() for name, w in formed.items()} if run.weights == "absolute" else formed


def like(weights: Mapping[str, Tensor], run: Pass) -> Tensor:
    """Returns an empty tensor on the weights' device, in the pass's precision."""
    device = next((w.device for w in weights.values()), torch.device("cpu"))
    return torch.empty(0, dtype=getattr(torch, run.dtype), device=device)


def pass_inputs(run: Pass, batch: Batch, seed: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns the pass's inputs and labels."""
    x, y = _unmoved(run, batch, seed, like)
    if run.nudge:
        step = torch.randn(x.shape, generator=generator(seed, "zen", run.draw))
        real = movable(batch)
        x = x + run.nudge * _like(step if real is None else step * real, like)
    return x, y


def _unmoved(run: Pass, batch: Batch, seed: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    if run.inputs in ("ones", "noise"):
        real = movable(batch)
        if run.inputs == "ones":
            x = torch.ones(1, *batch.input_shape)
        else:
            count = run.samples(batch.size)
            x = torch.randn((count, *batch.input_shape), generator=generator(seed, "noise", run.draw))
        if real is not None:
            x = torch.where(real, x, _dropped(batch)[torch.arange(len(x)) % batch.size])
        return _like(x, like), None
    try:
        x, y = batch.part(run.part)
    except DataError as error:
        raise PassFailedError(str(error)) from None
    if run.only is not None:
        if run.only[1] > len(x) and not run.fewer:
            raise PassFailedError(f"needs {run.only[1]} samples, and a part of this data has {len(x)}")
        x, y = x[slice(*run.only)], None if y is None else y[slice(*run.only)]
    return _like(x, like), None if y is None else brought(y, like.device)


def pass_curve(run: Pass, batch: Batch, seed: int, like: Tensor) -> Jet:
    """Returns points on a circle with their derivatives; integer columns keep the values of the first sample."""
    real = movable(batch)
    shape = batch.input_shape if real is None else (int(real.sum()),)
    used = slice(*run.only) if run.only else slice(None)
    value, velocity, acceleration = (part[used] for part in circle(shape, run.points, run.radius, seed, run.draw))
    if real is not None:
        first = _dropped(batch)[:1].expand(len(value), -1)  # [points, N]
        value = first.masked_scatter(real, value)
        velocity, acceleration = (
            torch.zeros_like(first).masked_scatter(real, moved) for moved in (velocity, acceleration)
        )
    return _like(value, like), _like(velocity, like), _like(acceleration, like)


def _like(x: Tensor, like: Tensor) -> Tensor:
    return brought(x.to(like.dtype), like.device)


def brought(x: Tensor, device: torch.device) -> Tensor:
    """Copies to the device without waiting for its queue; see `epochzero.plan.upload`."""
    queues = device.type == "cuda" and not x.is_cuda
    return x.pin_memory().to(device, non_blocking=True) if queues else x.to(device)


def movable(batch: Batch) -> Tensor | None:
    """Returns a mask of the columns that hold real numbers, or None if all do; raises a reason if none does."""
    if batch.layout is None or (real := batch.layout.real).all():
        return None
    if not real.any():
        raise PassFailedError(
            "the input is whole numbers, which cannot be moved, drawn or differentiated, and no embedding looks them up"
        )
    return real


def _dropped(batch: Batch) -> Tensor:
    """The first part, without what its ids are looked up as where a pass draws embeddings."""
    x = batch.part(0)[0]
    if batch.layout is not None and batch.layout.added:
        x = x.clone()
        x[:, batch.layout.width] = 0
    return x


def moves(run: Pass, wanted: Collection[str]) -> bool:
    """True if a pass draws or moves its inputs, or differentiates for them."""
    return run.inputs != "batch" or run.nudge > 0 or not OF_INPUTS.isdisjoint(wanted)


def of_movable(gradients: Tensor | Exception, batch: Batch) -> Tensor:
    """Returns the input gradients of the columns that hold real numbers."""
    real = movable(batch)
    if isinstance(gradients, Exception):
        raise gradients
    return gradients if real is None else gradients[:, real.to(gradients.device)]
