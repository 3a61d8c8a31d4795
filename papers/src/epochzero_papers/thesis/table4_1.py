"""Thesis, Table 4.1: popular cells and their adaptations to the widest topology, counted and trained.

An adapted cell keeps its operations, and every node of its normal and its reduction cell reads the two inputs
(`epochzero.analysis.topology.widest`). Width, depth and parameters (with the auxiliary tower, in networks of 20 cells
and 36 channels) are counted for CIFAR-10, CIFAR-100 and Tiny-ImageNet; test errors are measured on CIFAR-10, mean over
draws of the weights. Training as in appendix A.1: SGD, batches of 80, rate .025 annealed to 0, momentum .9, weight
decay 3e-4, 600 epochs; cutout of 16 pixels, auxiliary tower with weight .4, drop path up to .2. With a store on disk, a
training that was stopped resumes.

Shu. Understanding and improving neural architecture search (thesis, section 4.4 and Figure 4.26).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from epochzero.analysis.topology import KNOWN, topologies, widest
from epochzero.registry import spaces
from epochzero.spaces.darts import Darts
from epochzero.spaces.genotypes import Genotype
from epochzero.train import recipes
from epochzero.train.image_data import Images, load_images
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import Figures, grid, quoted
from epochzero_papers.harness.files import CIFAR10
from epochzero_papers.harness.training import some, trained

CLASSES = {"C10": 10, "C100": 100, "Tiny-ImageNet": 200}
COLUMNS = [column for data in CLASSES for column in (data, f"{data} adapted")]
ERROR, PARAMS, WIDTH, DEPTH = "test error %", "params M", "width c", "depth"
PAPER: dict[str, Figures] = {
    ERROR: grid(
        COLUMNS,
        {
            "NASNet": (2.65, 2.80, 17.06, 16.86, 31.88, 32.05),
            "AmoebaNet": (2.76, 2.91, 17.55, 17.28, 32.22, 33.16),
            "ENAS": (2.64, 2.76, 16.67, 16.04, 30.68, 31.36),
            "DARTS": (2.67, 2.73, 16.41, 16.15, 30.58, 31.33),
            "SNAS": (2.88, 2.69, 17.78, 17.20, 32.40, 32.61),
        },
    ),
    PARAMS: grid(
        COLUMNS,
        {
            "NASNet": (4.29, 4.32, 4.42, 4.45, 4.57, 4.60),
            "AmoebaNet": (3.60, 3.60, 3.71, 3.71, 3.83, 3.83),
            "ENAS": (4.32, 4.32, 4.45, 4.45, 4.60, 4.60),
            "DARTS": (3.83, 3.90, 3.95, 4.03, 4.08, 4.16),
            "SNAS": (3.14, 3.19, 3.26, 3.31, 3.39, 3.45),
        },
    ),
    WIDTH: grid(
        ("cell", "cell adapted"),
        {"NASNet": (5, 5), "AmoebaNet": (4, 3), "ENAS": (5, 5), "DARTS": (3.5, 4), "SNAS": (4, 4)},
    ),
    DEPTH: grid(
        ("cell", "cell adapted"),
        {"NASNet": (2, 2), "AmoebaNet": (4, 2), "ENAS": (2, 2), "DARTS": (3, 2), "SNAS": (2, 2)},
    ),
}


@dataclass(frozen=True)
class Training(Settings):
    """The first `networks` cells of the table, each unchanged and adapted."""

    networks: int = len(KNOWN)
    batch_size: int = 80
    channels: int = 36
    cells: int = 20
    epochs: int = 600
    images: int | None = None
    """training images; all if None"""


@experiment
class ThesisTable41(Recipe):
    """Ten networks, counted and trained."""

    name = "thesis-table4.1"
    source = "Shu, thesis, Table 4.1 and Figure 4.26"
    full: Training = Training()
    quick: Training = Training(channels=8, cells=3, epochs=1, images=400)
    needs = (CIFAR10,)

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [figure for statistic, figures in PAPER.items() for figure in quoted(figures, statistic)]

    def measure(self, work: Work) -> Measurement:
        settings: Training = work.settings
        (file,) = work.images()
        images = some(load_images(file, seed=work.seed), settings.images)
        work.begin(file=file.name, images=str(images.facts["sha256"]))
        chosen = dict(list(KNOWN.items())[: settings.networks])
        rows: list[Row] = []
        values: dict[str, list[float | None]] = {}
        for done, (name, arch) in enumerate(chosen.items()):
            rows += _counted(name, arch)
            values[name] = []
            for way, cell in enumerate((arch, widest(arch))):
                work.progress(2 * done + way, 2 * len(chosen))
                column = COLUMNS[way]
                errors = [_error(work, images, f"{name} {way}", cell, repeat) for repeat in range(settings.repeats)]
                figure = estimate(errors)
                rows.append(Row("cells", name, column, ERROR, figure, 0, PAPER[ERROR][name][column]))
                values[name] += errors
        work.progress(2 * len(chosen), 2 * len(chosen))
        about = f"{len(images.y)} images of {file.name} to train on, {len(images.test_y)} to test with."
        sample = Sample.measured("darts", values, about, list(chosen))
        return Measurement(rows, {"cells": sample}, ["Test errors on CIFAR-100 and Tiny-ImageNet are not measured."])


def _counted(name: str, arch: Genotype) -> list[Row]:
    """Returns the rows that need no training."""
    rows = []
    for way, cell in enumerate((arch, widest(arch))):
        shape = topologies(cell)["normal"]
        for statistic, count in ((WIDTH, shape.width), (DEPTH, shape.depth)):
            rows.append(_row(name, ("cell", "cell adapted")[way], statistic, count))
        for place, classes in enumerate(CLASSES.values()):
            params = spaces["darts"].plan(cell, classes, auxiliary=True).params / 1e6
            rows.append(_row(name, COLUMNS[2 * place + way], PARAMS, params))
    return rows


def _row(name: str, column: str, statistic: str, value: float) -> Row:
    paper = PAPER[statistic][name][column]
    return Row("cells", name, column, statistic, estimate([value]), 0, paper)


def _error(work: Work, images: Images, name: str, arch: Genotype, repeat: int) -> float:
    """Returns the test error of one training, in percent."""
    settings: Training = work.settings
    recipe = replace(recipes.RECIPES["darts"], epochs=settings.epochs, batch_size=settings.batch_size, clip=0.0)
    space: Any = Darts("darts_trained", settings.channels, settings.cells)
    facts = {"experiment": ThesisTable41.name, "cell": name, "arch": arch.text}
    seed = work.seed + repeat
    network = trained(work, f"{name} {repeat}", space, arch, images, recipe, seed=seed, facts=facts)
    return 100 * (1 - network.history[-1]["test_accuracy"])
