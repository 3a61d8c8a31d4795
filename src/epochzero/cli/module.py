"""A user's own network, named as `file.py:factory`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.data.batch import USUAL_SIZE
from epochzero.data.packed import Inputs
from epochzero.engine.loss import needs_labels, with_loss
from epochzero.errors import UserError
from epochzero.spaces.base import fitting_arguments
from epochzero.user_code import blaming, named_in

PARTS = 4
"""most batches that given inputs are cut into, as many as of noise"""

Given = tuple[nn.Module, Inputs | None, Tensor | None]
"""a module, and the inputs and labels that came with it"""


def load_module(reference: str, seed: int, batch: Callable[[], Batch]) -> Given:
    """Run the file and call the factory in it: a module, or (module, inputs), or (module, inputs, labels).

    What it draws at random comes from the seed, so that the same command gives the same score. A factory that takes
    `num_classes` or `input_shape` gets those of the batch.
    """
    named = named_in(reference)
    if callable(named) and not isinstance(named, nn.Module):
        fits: dict[str, Any] = {}
        if fitting_arguments(named, {"num_classes": None, "input_shape": None}):
            made_for = batch()
            fits = fitting_arguments(named, {"num_classes": made_for.num_classes, "input_shape": made_for.input_shape})
        with torch.random.fork_rng(), blaming(reference):
            torch.manual_seed(seed)
            named = named(**fits)
    made = named
    module, *rest = made if isinstance(made, tuple) and 1 < len(made) <= 3 else (made,)
    if not isinstance(module, nn.Module):
        raise UserError(
            f"'{reference}' gives {type(module).__name__}, not an nn.Module; `epochzero rank` takes several."
        )
    inputs, y = (*rest, None, None)[:2]
    if not isinstance(inputs, (Tensor, tuple, list, Mapping, type(None))) or not isinstance(y, (Tensor, type(None))):
        raise UserError(f"'{reference}' gives a module with {type(inputs).__name__}, not with tensors.")
    return module, inputs, y


def batch_of(inputs: Inputs, y: Tensor | None, size: int | None, classes: int | None, loss: str | None = None) -> Batch:
    """Up to four batches of that size; a single smaller one where there are fewer samples."""
    tensors = inputs.values() if isinstance(inputs, Mapping) else (inputs,) if isinstance(inputs, Tensor) else inputs
    count = min((len(x) for x in tensors if isinstance(x, Tensor) and x.dim()), default=0)
    size = max(1, min(size or USUAL_SIZE, count))
    parts, targets = max(1, min(PARTS, count // size)), not needs_labels(loss)
    batch = data_.from_tensors(inputs, y, num_classes=classes, parts=parts, size=size, targets=targets)
    return with_loss(batch, loss)
