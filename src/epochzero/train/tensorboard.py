"""Loss and accuracy of every epoch for TensorBoard. Needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from epochzero.errors import needed

Board = Callable[[dict[str, float]], None]


@contextmanager
def logged(folder: Path) -> Iterator[Board]:
    """A function that logs the record of an epoch, and drops the folder's records of that epoch and later ones."""
    needed("tensorboard", "--tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    writer: SummaryWriter | None = None

    def log(record: dict[str, float]) -> None:
        nonlocal writer
        epoch = int(record["epoch"])
        if writer is None:
            writer = SummaryWriter(str(folder), purge_step=epoch)
        for name, value in record.items():
            if name != "epoch":
                writer.add_scalar(name, value, epoch)
        writer.flush()

    try:
        yield log
    finally:
        if writer is not None:
            writer.close()
