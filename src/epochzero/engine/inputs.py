"""What goes into a pass: weights, inputs and labels, in one place and precision."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine.failure import PassFailedError
from epochzero.engine.network import Network
from epochzero.engine.passes import Pass
from epochzero.errors import DataError
from epochzero.plan import generator
from epochzero.types import Origin

NEXT_DRAW = 1_000_003
"""how far apart the seeds of repeated initialisations are"""


def pass_weights(network: Network, run: Pass, seed: int) -> dict[str, Tensor]:
    """The network's own weights, or drawn anew; made absolute if asked."""
    dtype = getattr(torch, run.dtype)
    found = network.redrawn(Origin(run.init, seed + NEXT_DRAW * run.draw)) if run.init else network.weights
    weights = {name: w.detach().to(dtype) if w.is_floating_point() else w for name, w in found.items()}
    return {name: w.abs() for name, w in weights.items()} if run.weights == "absolute" else weights


def like(weights: Mapping[str, Tensor], run: Pass) -> Tensor:
    """An empty tensor where the weights are, in the pass's precision."""
    device = next((w.device for w in weights.values()), torch.device("cpu"))
    return torch.empty(0, dtype=getattr(torch, run.dtype), device=device)


def pass_inputs(run: Pass, batch: Batch, seed: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """The pass's inputs and labels."""
    if run.inputs == "ones":
        return torch.ones(1, *batch.input_shape, dtype=like.dtype, device=like.device), None
    if run.inputs == "noise":
        return _noise(run, batch, seed).to(like), None
    try:
        x, y = batch.part(run.part)
    except DataError as error:
        raise PassFailedError(str(error)) from None
    if run.only is not None:
        if run.only[1] > len(x):
            raise PassFailedError(f"needs {run.only[1]} samples, and a part of this data has {len(x)}")
        x, y = x[slice(*run.only)], None if y is None else y[slice(*run.only)]
    return x.to(like), None if y is None else y.to(like.device)


def _noise(run: Pass, batch: Batch, seed: int) -> Tensor:
    size = (batch.size if run.only is None else run.only[1] - run.only[0], *batch.input_shape)
    return torch.randn(size, generator=generator(seed, "noise", run.draw))
