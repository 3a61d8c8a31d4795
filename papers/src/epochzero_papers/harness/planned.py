"""Tables and figures that cannot be measured here, with their protocol and the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from epochzero.errors import UserError
from epochzero.registry import experiments
from epochzero_papers.harness.base import Quoted, Status
from epochzero_papers.harness.figures import Figures, quoted
from epochzero_papers.harness.files import FOLDER, File

IMAGENET = "ImageNet and days of GPU time"


@dataclass(frozen=True)
class Planned:
    """A table or figure that needs more than is at hand."""

    name: str
    source: str
    about: str
    wants: str
    """the data and time that it needs"""
    protocol: str
    statistic: str
    """the kind of figure"""
    figures: Figures
    """the paper's"""
    needs: Sequence[File] = ()

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(self.figures, self.statistic)

    def status(self, folder: str | Path = FOLDER) -> Status:
        return "planned"

    def sized(self, quick: bool = False, networks: int | None = None) -> NoReturn:
        self.run()

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UserError(
            f"{self.name} cannot be run here: it needs {self.wants}; its protocol and the paper's figures: "
            f"epochzero reproduce {self.name} --about."
        )


def plan(origin: str, *planned: Planned) -> None:
    """Register the planned tables and figures of one paper."""
    for one in planned:
        experiments.register(one.name, one, origin=origin)
