"""Copies numbers to a device without waiting for what runs there.

A plain copy to a GPU waits until everything launched before it is done. From pinned memory it is queued among the
kernels, and this process goes on launching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """Returns the numbers as a tensor on the device; on the CPU it may share their memory."""
    here = torch.from_numpy(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def upload_columns(columns: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Returns columns of whole numbers as parts of one tensor [N] of 32 bits, each from a multiple of 16 bytes on."""
    ends = np.cumsum([0, *(-(-len(column) // 4) * 4 for column in columns)]).tolist()
    joined = np.zeros(ends[-1], np.int32)
    parts = [slice(begin, begin + len(column)) for begin, column in zip(ends, columns, strict=False)]
    for part, column in zip(parts, columns, strict=True):
        joined[part] = column
    copied = upload(joined, device)
    return [copied[part] for part in parts]
