"""Copies numbers to a device without waiting for what runs there.

A plain copy to a GPU waits until everything launched before it is done. From pinned memory it is queued among the
kernels, and this process goes on launching.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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


def copied_at_once(
    shapes: Sequence[Sequence[int]], fill: Callable[[list[Tensor]], None], device: torch.device
) -> list[Tensor]:
    """Returns tensors of these shapes on the device, parts of one copy of a buffer on the CPU that `fill` writes."""
    ends = np.cumsum([0, *(-(-math.prod(shape) // ALIGNED) * ALIGNED for shape in shapes)]).tolist()
    here = torch.empty(ends[-1], pin_memory=device.type == "cuda")

    def parts(whole: Tensor) -> list[Tensor]:
        begun = zip(shapes, ends, strict=False)
        return [whole[begin : begin + math.prod(shape)].view(tuple(shape)) for shape, begin in begun]

    fill(parts(here))
    return parts(here.to(device, non_blocking=True))


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Returns the tensors on the device; to a GPU those in single precision go in one copy."""
    here = {
        name: own
        for name, own in tensors.items()
        if device.type == "cuda" and own.device.type == "cpu" and own.dtype == torch.float32
    }

    def fill(parts: list[Tensor]) -> None:
        for part, own in zip(parts, here.values(), strict=True):
            part.copy_(own)

    there = copied_at_once([own.shape for own in here.values()], fill, device) if here else []
    together = dict(zip(here, there, strict=True))
    return {name: together[name] if name in together else own.to(device) for name, own in tensors.items()}


ALIGNED = 64
"""numbers, 256 bytes: where kernels expect a tensor to begin"""
