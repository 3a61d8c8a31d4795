"""Processes started by `torchrun` that train one network, each on its share of every batch.

    torchrun --nproc-per-node 4 -m epochzero train --device cuda ...

`torchrun` sets WORLD_SIZE, RANK and LOCAL_RANK; without it there is one process. Gradients are averaged by torch's
DistributedDataParallel, over NCCL on GPUs and gloo on CPUs. Batch norms use their own process's share, and those of the
first process are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from epochzero.errors import UserError


@dataclass(frozen=True)
class Processes:
    """The number of processes of a training, and the rank and device of the current one."""

    count: int = 1
    rank: int = 0
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """True for the process that writes and prints."""
        return self.rank == 0

    def share(self, size: int) -> slice:
        """The current process's part of a batch; UserError if the batch cannot be divided evenly."""
        if size % self.count:
            raise UserError(
                f"A batch of {size} cannot be shared by {self.count} processes: give a --batch-size that is a "
                f"multiple of {self.count}."
            )
        each = size // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def summed(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def joined(self, module: nn.Module) -> nn.Module | None:
        """The network with gradients averaged over all processes; None for a single process."""
        if self.count == 1:
            return None
        places = [torch.device(self.device).index] if self.device.startswith("cuda") else None
        return DistributedDataParallel(module, device_ids=places, static_graph=True)

    def wait(self) -> None:
        """Waits for all processes."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """The processes that `torchrun` started, each on its own GPU if the device is cuda."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device=device)
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Processes(count, rank, device)
    finally:
        dist.destroy_process_group()
