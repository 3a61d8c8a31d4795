"""Ensembles at a feasible scale: the shared part of the tables and figures of the thesis' chapter 5.

One chain (`nesbs_chain.py`) for each data set and repeat: a supernet, posteriors, selected members that are trained
with one recipe, figures of ensembles of three; `networks` is the pool that NES-RS trains. The thesis trains members for
600 epochs (100 for Table 5.7), here for 12, and data sets are as large as the files at hand. Figures and intervals are
over chains. With a store on disk, a chain that was stopped resumes.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from epochzero.data.batch import digest
from epochzero.train.supernet import SUPERNET
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Status, Work
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import Figures, quoted
from epochzero_papers.harness.files import CIFAR10, CIFAR100, FOLDER, IMAGENET16, File, missing
from epochzero_papers.harness.training import folder_for
from epochzero_papers.thesis import nesbs_chain

DATA = {"C10": CIFAR10, "C100": CIFAR100, "IN16": IMAGENET16}
WAYS = {
    "DeepEns": "deep ensemble of the single best",
    "NES-RS": "NES-RS",
    "NESBS, MC sampling": "NESBS, mc",
    "NESBS, SVGD-RD": "NESBS, svgd",
}
"""names of the thesis to names of the chain"""
OTHERS = {
    "MC DropPath": "MC DropPath",
    "uniform": "URS",
    "without training": "without training",
    "single best": "single best",
}
ALIKE = (
    "images", "channels", "cells", "epochs", "posterior_epochs", "posterior_batch", "candidates", "svgd_steps",
    "untrained_pool", "member_epochs", "member_batch", "looked_at", "curve_images", "trials", "budget",
)  # fmt: skip
"""settings with the same name in the chain"""
Columns = Mapping[str, Mapping[str, float | None]]
"""by column and row of a table"""


@dataclass(frozen=True)
class Sizes(Settings):
    """The sizes of a chain; `networks` is its pool, `images` 0 for all."""

    networks: int = 10
    batch_size: int = SUPERNET.batch_size
    repeats: int = 3
    data: tuple[str, ...] = ("C10", "C100")
    images: int = 0
    channels: int = 16
    cells: int = 0
    epochs: int = SUPERNET.epochs
    posterior_epochs: int = 20
    posterior_batch: int = 128
    candidates: int = 5
    svgd_steps: int = 1000
    untrained_pool: int = 32
    member_epochs: int = 12
    member_batch: int = 128
    looked_at: int = 50
    curve_images: int = 2000
    trials: int = 1
    budget: int = 1
    curves: bool = False
    inherited: bool = False
    """no members are trained"""

    @property
    def of_chain(self) -> dict[str, Any]:
        """The settings of the chain, by their names there."""
        own = {name: getattr(self, name) for name in ALIKE}
        return own | {
            "pool": self.networks,
            "batch": self.batch_size,
            "curves": self.curves,
            "inherited": self.inherited,
        }


SMALL = Sizes(
    networks=4,
    batch_size=64,
    repeats=1,
    data=("C10",),
    images=300,
    channels=4,
    cells=1,
    epochs=1,
    posterior_epochs=1,
    posterior_batch=64,
    candidates=1,
    svgd_steps=50,
    untrained_pool=4,
    member_epochs=1,
    member_batch=64,
    looked_at=2,
    curve_images=90,
)


class Ensembles(Recipe):
    """A table of figures of ensembles."""

    full: Sizes = Sizes()
    quick: Sizes = SMALL
    space: str = "nb201"
    statistic: str = "test error %"
    paper: ClassVar[Figures] = MappingProxyType({})
    """by row, then by column; empty if the thesis has a picture"""
    unmeasured: Sequence[str] = ()

    @abstractmethod
    def columns(self, label: str, stages: Mapping[str, Any]) -> Columns:
        """Returns the columns of a finished chain of one data set."""

    @property
    def needs(self) -> Sequence[File]:  # type: ignore[override]
        return [DATA[label] for label in self.full.data]

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(self.paper, self.statistic)

    def status(self, folder: str | Path = FOLDER) -> Status:
        there = [file.find(folder) is not None for file in self.needs]
        return "ready" if all(there) else "part" if any(there) else "needs data"

    def measure(self, work: Work) -> Measurement:
        settings: Sizes = work.settings
        files = {label: DATA[label].find(work.folder) for label in settings.data}
        if work.data is not None:
            files = {settings.data[0]: Path(work.data)}
        held = {label: file for label, file in files.items() if file is not None}
        if not held:
            raise missing(self.name, [DATA[label] for label in files], work.folder)
        work.begin(files=[file.name for file in held.values()])
        figures_of: dict[str, dict[str, list[float | None]]] = {}
        about = {}
        seeds = range(work.seed, work.seed + settings.repeats)
        with folder_for(work, "ensembles") as folder:
            for place, (label, file) in enumerate(held.items()):
                for seed in seeds:
                    work.progress(place * len(seeds) + seed - work.seed, len(held) * len(seeds))
                    stages = self.finished(work, file, folder, seed)
                    for column, figures in self.columns(label, stages).items():
                        about[column] = f"{file.name}, {settings.images or 'all'} training images."
                        for row, value in figures.items():
                            figures_of.setdefault(column, {}).setdefault(row, []).append(value)
        work.progress(1, 1)
        rows = [self._row(column, row, values) for column in figures_of for row, values in figures_of[column].items()]
        samples = {column: Sample.measured(self.space, values, about[column]) for column, values in figures_of.items()}
        lacking = [
            f"{label} is left out: it needs {DATA[label].request} in '{work.folder}'."
            for label, file in files.items()
            if file is None
        ]
        return Measurement(rows, samples, [*lacking, *self.unmeasured])

    def finished(self, work: Work, file: Path, folder: Path, seed: int) -> Mapping[str, Any]:
        """Returns the stages of one chain, which is run if it is not finished."""
        settings: Sizes = work.settings
        own: dict[str, Any] = {"space": self.space, "device": work.device, "seed": seed} | settings.of_chain
        spoken = [f"--{name.replace('_', '-')}={value}" for name, value in own.items() if not isinstance(value, bool)]
        spoken += [f"--{name}" for name, value in own.items() if value is True]
        out = folder / f"{self.space}-{digest(file.name, *spoken)[:12]}.json"
        nesbs_chain.run(nesbs_chain.ChainSettings(data=str(file), out=str(out), **own))
        self.more(work, file, out)
        stages: Mapping[str, Any] = json.loads(out.read_text(encoding="utf-8"))["stages"]
        return stages

    def more(self, work: Work, file: Path, out: Path) -> None:
        """Add the stages of a table to a finished chain."""

    def _row(self, column: str, row: str, values: Sequence[float | None]) -> Row:
        known = [value for value in values if value is not None]
        figure = estimate(known) if known else None
        why = "" if known else "all ensembles are alike"
        paper = self.paper.get(row, {}).get(column)
        return Row(column, row, column, self.statistic, figure, len(values) - len(known), paper, why)


def percent(stages: Mapping[str, Any], name: str, ways: Mapping[str, str] = WAYS | OTHERS) -> dict[str, float | None]:
    """Returns a measure of all ensembles, by the thesis' names."""
    ensembles = stages["trained"]["ensembles"]
    return {title: 100 * ensembles[way][name] for title, way in ways.items()}
