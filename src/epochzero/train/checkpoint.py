"""The checkpoints of a training: the last two are kept, and a damaged one is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epochzero.data.sealed import State, read, write
from epochzero.errors import DataError, UserError

KEPT = 2


class Checkpoints:
    """The last checkpoints of one training, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refused: list[str] = []
        """why newer checkpoints were skipped"""

    def files(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("epoch-*.pt"), reverse=True)

    def write(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Writes the state after this epoch, and keeps only one older checkpoint."""
        write(self.folder / f"epoch-{epoch:06}.pt", state)
        for old in self.files()[KEPT:]:
            old.unlink()

    def last(self) -> State | None:
        """The newest whole checkpoint; None if there is none yet."""
        self.refused = []
        for file in self.files():
            try:
                return read(file)
            except DataError as error:
                self.refused.append(str(error))
        if self.refused:
            raise UserError(f"{' '.join(self.refused)} Remove the folder '{self.folder}' to start again.")
        return None
