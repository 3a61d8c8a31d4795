"""Numbers of this process for a device, without waiting for what runs there.

A plain copy to a GPU waits until everything that was launched before is done. From pinned memory it takes its turn
among the kernels, and this process goes on launching.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """The numbers as a tensor on the device; on the CPU it may share their memory."""
    here = torch.from_numpy(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)
