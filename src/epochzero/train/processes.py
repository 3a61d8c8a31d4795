"""Several processes that train one network, started by `torchrun`, each with its share of every batch.

    torchrun --nproc-per-node 4 -m epochzero train --device cuda ...

`torchrun` says by WORLD_SIZE, RANK and LOCAL_RANK who is who; without it there is one process and nothing here happens.
Gradients are averaged by torch's DistributedDataParallel, over NCCL on GPUs and over gloo on CPUs. Batch norms see the
share of their own process, and those of the first process are kept.
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
    """Who trains together."""

    count: int = 1
    rank: int = 0
    """of this one"""
    device: str = "cpu"
    """of this one"""

    @property
    def first(self) -> bool:
        """Whether this one writes and prints."""
        return self.rank == 0

    def share(self, size: int) -> slice:
        """Which part of a batch is this one's; UserError where it cannot be shared out evenly."""
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
        """The network with gradients averaged over all; None for one process alone."""
        if self.count == 1:
            return None
        places = [torch.device(self.device).index] if self.device.startswith("cuda") else None
        return DistributedDataParallel(module, device_ids=places, static_graph=True)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """The processes that `torchrun` started, this one among them; on GPUs each takes one of its own."""
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
