"""Checkpoints that survive a kill and a full disk, and detect damage.

A checkpoint is an ordinary PyTorch file of tensors and plain values. It is written next to an older one and replaces it
in one step, so that a partial file never exists. It contains a SHA-256 of everything else, because PyTorch does not
notice a flipped bit. Files are read with `weights_only`: a pickle that would run code is refused.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import warnings
import zipfile
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


VIEWS = 100
"""limit on how often the content of a file may occur in what it holds, by views and repeated texts"""


def read(path: Path) -> State:
    """Returns the content of a PyTorch file; DataError if it is damaged or holds more than tensors and plain values."""
    try:
        content = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise DataError(f"The checkpoint '{path}' cannot be read ({error.strerror}).") from None
    try:
        state, whole = _loaded(content)
    except Exception as error:
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            raise DataError(
                f"The checkpoint '{path}' is refused: it holds more than numbers and could run code when it is "
                "opened. Save a state_dict."
            ) from None
        raise DataError(f"The checkpoint '{path}' is damaged, cut short or no PyTorch file at all.") from None
    if not isinstance(state, dict):
        raise DataError(f"The checkpoint '{path}' holds no dictionary: save a state_dict.")
    if not whole:
        raise DataError(f"The checkpoint '{path}' is damaged: its content does not match its checksum.")
    return state


def _loaded(content: io.BytesIO) -> tuple[Any, bool]:
    """The content of a PyTorch file, and False if it does not match its checksum."""
    size = content.getbuffer().nbytes
    if zipfile.is_zipfile(content) and sum(one.file_size for one in zipfile.ZipFile(content).infolist()) > size:
        raise ValueError("it is packed, as no file of torch.save is")
    content.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of old formats
        state = torch.load(content, map_location="cpu", weights_only=True)
    digested = state.pop(DIGEST, None) if isinstance(state, dict) else None
    return state, digested is None or digested == digest(state, VIEWS * size)


def read_own(path: Path) -> State:
    """Returns a checkpoint of this program, which is written again if it is damaged and removed."""
    try:
        return read(path)
    except DataError as error:
        raise DataError(f"{error} Remove it: the same command then writes it again.") from None


def digest(value: object, most: float = math.inf) -> str:
    """Returns a hash of tensors and plain values at any depth; ValueError if it would take more than `most` bytes."""
    sha = _Sha256(most)
    _feed(sha, value)
    return str(sha.hash.hexdigest())


class _Sha256:
    hash: Any

    def __init__(self, most: float) -> None:
        self.hash, self.left = hashlib.sha256(), most

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError("it holds more than its file")

    def update(self, part: bytes) -> None:
        self.take(len(part))
        self.hash.update(part)


def _feed(sha: _Sha256, value: object) -> None:
    if isinstance(value, Tensor):
        sha.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
        sha.take(value.nbytes)  # before a view of few numbers is copied to many
        sha.hash.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
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
