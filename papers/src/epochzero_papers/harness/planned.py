"""Tables and figures that are out of reach here: their protocol and the paper's figures, so that none is forgotten.

Each becomes a recipe in a file of its own when what it needs is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from epochzero.errors import UserError
from epochzero.registry import experiments
from epochzero_papers.harness.base import Quoted, Status
from epochzero_papers.harness.files import FOLDER, File

IMAGENET = "ImageNet and days of GPU time"
Figures = Mapping[str, Mapping[str, float]]
"""by row, then by column"""


@dataclass(frozen=True)
class Planned:
    """What is to be measured, and what the paper found."""

    name: str
    source: str
    about: str
    wants: str
    """why it is not run"""
    protocol: str
    statistic: str
    """what the figures are"""
    figures: Figures
    """the paper's"""
    needs: Sequence[File] = ()

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [
            Quoted(row, column, self.statistic, value)
            for row, columns in self.figures.items()
            for column, value in columns.items()
        ]

    def status(self, folder: str | Path = FOLDER) -> Status:
        return "planned"

    def sized(self, quick: bool = False, networks: int | None = None) -> NoReturn:
        self.run()

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UserError(
            f"{self.name} cannot be run here: it needs {self.wants}; its protocol and the paper's figures: "
            f"epochzero reproduce {self.name} --about."
        )


def grid(columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> Figures:
    """A table as papers print it; None for an empty cell."""
    return {
        name: {column: value for column, value in zip(columns, values, strict=True) if value is not None}
        for name, values in rows.items()
    }


def plan(origin: str, *planned: Planned) -> None:
    """Register what is planned of one paper."""
    for one in planned:
        experiments.register(one.name, one, origin=origin)
