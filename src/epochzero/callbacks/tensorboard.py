"""Curves for TensorBoard. Needs the extra `tensorboard`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochzero.errors import needed

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes scalars into a folder, in place of its records of the first step that is told and later ones."""

    def __init__(self, folder: str | Path) -> None:
        needed("tensorboard", "Logging for TensorBoard", "tensorboard")
        self.folder = folder
        self.settings: Mapping[str, Any] = {}
        self.writer: SummaryWriter | None = None

    def begin(self, kind: str, settings: Mapping[str, Any]) -> None:
        self.settings = {"kind": kind, **settings}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        writer = self._open(step)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def end(self, summary: Mapping[str, Any]) -> None:
        writer = self._open(None)
        for name, facts in (("settings", self.settings), ("summary", summary)):
            writer.add_text(name, f"    {json.dumps(facts, ensure_ascii=False)}")
        writer.close()

    def _open(self, step: int | None) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        if self.writer is None:
            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        return self.writer
