"""Weights from a file, checked against their network.

The file is a checkpoint of `epochzero train`, the folder of one, a `state_dict` saved by PyTorch, or a `.safetensors`
file. None of them can run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epochzero.data.sealed import read
from epochzero.errors import DataError, UserError
from epochzero.plan import Plan
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.images import FORMAT
from epochzero.train.tensor_file import read_tensors

OURS = {"format", "identity", "epoch", "history", "weights"}
"""keys of every checkpoint of `epochzero train`"""
COUNTER = "num_batches_tracked"
"""a buffer of torch's batch norms that no prediction depends on"""


@dataclass(frozen=True)
class Weights:
    """Tensors by name, and the training that they are from."""

    name: str
    tensors: Mapping[str, Tensor]
    training: Mapping[str, Any] | None = None
    """of a checkpoint of `epochzero train`: identity, epoch and history"""
    refused: list[str] = field(default_factory=list)
    """why damaged checkpoints were skipped"""

    @property
    def identity(self) -> Mapping[str, Any]:
        """The network of the weights, as far as the file names it."""
        return {} if self.training is None else self.training["identity"]


def read_weights(path: Path) -> Weights:
    """Reads any of these; DataError for a damaged, hostile or unknown file."""
    if not path.exists():
        raise DataError(f"There are no weights '{path}'.")
    if path.is_dir():
        kept = Checkpoints(path)
        state = kept.last()
        if state is None:
            raise DataError(f"The folder '{path}' holds no checkpoint (epoch-000001.pt, ...): train into it first.")
        return _from_state(path.name, state, kept.refused)
    if path.suffix == ".safetensors":
        return Weights(path.name, read_tensors(path))
    return _from_state(path.name, read(path), [])


def _from_state(name: str, state: Mapping[str, Any], refused: list[str]) -> Weights:
    """Weights of a checkpoint of `epochzero train`, or of a state_dict, either directly or under that key."""
    ours = state.keys() >= OURS
    if ours and state["format"] != FORMAT:
        raise DataError(f"The checkpoint '{name}' is of format {state['format']}, and this EpochZero knows {FORMAT}.")
    tensors = state["weights"] if ours else state.get("state_dict", state)
    if not isinstance(tensors, dict) or not tensors or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise DataError(f"The checkpoint '{name}' holds no weights by name: save a state_dict.")
    training = {key: state[key] for key in ("identity", "epoch", "history")} if ours else None
    return Weights(name, tensors, training, refused)


def fitting(plan: Plan, weights: Weights, num_classes: int) -> dict[str, Tensor]:
    """The weights in the plan's order; UserError if they are of another network."""
    given = {name: tensor for name, tensor in weights.tensors.items() if not name.endswith(COUNTER)}
    expected = {name: param.shape for name, param in plan.weights.items()}
    where = f"The weights '{weights.name}'"
    missing, strange = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or strange:
        odd = f"lack {min(missing)}" if missing else f"have {min(strange)}, which the network lacks"
        count = len(missing) + len(strange)
        more = f" ({count} names differ in all)" if count > 1 else ""
        raise UserError(f"{where} are of another network: they {odd}{more}. Give the --space and --arch they are of.")
    wrong = {name: tuple(given[name].shape) for name, shape in expected.items() if tuple(given[name].shape) != shape}
    if wrong:
        sizes = {shape[0] for shape in wrong.values() if shape}
        if len(sizes) == 1 and all(expected[name] == (num_classes, *shape[1:]) for name, shape in wrong.items()):
            (classes,) = sizes
            raise UserError(f"{where} have {classes} classes, and the network {num_classes}: give --classes {classes}.")
        name, shape = next(iter(wrong.items()))
        raise UserError(
            f"{where} are of another network: {name} is {list(shape)}, and should be {list(expected[name])}. Give the "
            "--space, --arch and --input-shape they are of."
        )
    tensors = {name: given[name].detach().to("cpu", torch.float32).contiguous() for name in expected}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{where} hold numbers in {name} that are NaN or infinite: the training went wrong.")
    return tensors
