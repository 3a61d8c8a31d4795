"""Small files of data, friendly and hostile, and how the tests look at a batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from epochzero.data import Batch


def labelled(batch: Batch, index: int = 0) -> tuple[Tensor, Tensor]:
    x, y = batch.part(index)
    assert y is not None
    return x, y


def save(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return path


def pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


class Trap:
    """A pickle of it makes the folder `sprung` when it is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)
