"""Checkpoints that survive a kill and a full disk, and detect damage.

A checkpoint is an ordinary PyTorch file of tensors and plain values. It is written next to an older one and replaces it
in one step, so that a partial file never exists. It contains a SHA-256 of everything else, because PyTorch does not
notice a flipped bit. Files are read with `weights_only`: a pickle that would run code is refused.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epochzero import files
from epochzero.errors import DataError, MachineError

DIGEST = "sha256"
State = dict[str, Any]


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a checkpoint, completely or not at all."""
    content = io.BytesIO()
    torch.save({**state, DIGEST: digest(state)}, content)
    put(path, content.getbuffer(), "checkpoint", "; those before it are safe")


def put(path: Path, content: bytes | memoryview, what: str, consoled: str = "") -> None:
    """Writes a file completely or not at all; MachineError names the file if that fails."""
    try:
        files.write(path, content)
    except OSError as error:
        raise MachineError(
            f"The {what} '{path}' could not be written ({error.strerror}){consoled}. Make room, then repeat the "
            "command to resume."
        ) from error


def read(path: Path) -> State:
    """Returns the content of a PyTorch file; DataError if it is damaged or holds more than tensors and plain values."""
    try:
        content = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise DataError(f"The checkpoint '{path}' cannot be read ({error.strerror}).") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of old formats
            state = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            raise DataError(
                f"The checkpoint '{path}' is refused: it holds more than numbers and could run code when it is "
                "opened. Save a state_dict."
            ) from None
        raise DataError(f"The checkpoint '{path}' is damaged, cut short or no PyTorch file at all.") from None
    if not isinstance(state, dict):
        raise DataError(f"The checkpoint '{path}' holds no dictionary: save a state_dict.")
    said = state.pop(DIGEST, None)
    if said is not None and said != digest(state):
        raise DataError(f"The checkpoint '{path}' is damaged: its content does not match its checksum.")
    return state


def read_own(path: Path) -> State:
    """Returns a checkpoint of this program, which is written again if it is damaged and removed."""
    try:
        return read(path)
    except DataError as error:
        raise DataError(f"{error} Remove it: the same command then writes it again.") from None


def digest(value: object) -> str:
    """Returns a hash of tensors and plain values at any depth."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: Any, value: object) -> None:
    if isinstance(value, Tensor):
        sha.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
        sha.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, Mapping):
        sha.update(f"mapping {len(value)} ".encode())
        for key, item in value.items():
            _feed(sha, key)
            _feed(sha, item)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        sha.update(f"sequence {len(value)} ".encode())
        for item in value:
            _feed(sha, item)
    else:
        sha.update(f"{type(value).__name__} {value!r} ".encode())
