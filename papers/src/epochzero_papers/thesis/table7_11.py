"""Thesis, Table 7.11: the non-realizable guarantee on NAS-Bench-201, by initial channels.

Networks with 4 to 32 channels in the first stage, where the benchmark has 16, twice and four times as many in the next
two. Channels vary for the metric M with 4 for the condition number kappa, or for kappa with 32 for M. mu and nu are
tuned with 16 for both, on the first half of the networks (see `guarantees.py`); the figures are of the other half, the
thesis' of all networks.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from dataclasses import replace

from epochzero.plan import Builder, Plan
from epochzero.spaces import nb201
from epochzero.study.task import Task
from epochzero.types import Shape
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Extent
from epochzero_papers.thesis.ablation import Ablation, by_row

CHANNELS = (4, 8, 16, 32)


class Widened(nb201.NB201):
    """The networks of NAS-Bench-201 with another number of channels."""

    def __init__(self, channels: int) -> None:
        self.name = f"nb201_{channels}"
        self.widths = (channels, 2 * channels, 4 * channels)

    def plan(self, arch: nb201.Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        nb201.check_task(self.name, num_classes, input_shape)
        net = Builder()
        x = net.inline(nb201.stem(self.widths[0], input_shape), net.input(input_shape), name="stem")
        for stage, width in enumerate(self.widths):
            if stage:
                x = net.inline(nb201.reduction(width, net.shape(x)), x, name=f"reduce{stage}")
            cell = nb201.cell(arch, width, 1, net.shape(x))
            for i in range(nb201.CELLS):
                x = net.inline(cell, x, name=f"cell{stage * nb201.CELLS + i}")
        net.inline(nb201.head(num_classes, net.shape(x)), x, name="head")
        return net.plan()


@experiment
class ThesisTable711(Ablation):
    """Four metrics, four widths, twice."""

    name = "thesis-table7.11"
    source = "Shu, thesis, Table 7.11"
    quick = Extent(networks=16, batch_size=8)
    spearman = by_row(
        {
            "M, 4": (0.744, 0.746, 0.688, 0.732),
            "M, 8": (0.750, 0.753, 0.707, 0.744),
            "M, 16": (0.753, 0.753, 0.728, 0.750),
            "M, 32": (0.755, 0.756, 0.736, 0.752),
            "kappa, 4": (0.755, 0.756, 0.736, 0.752),
            "kappa, 8": (0.720, 0.722, 0.700, 0.709),
            "kappa, 16": (0.698, 0.700, 0.677, 0.681),
            "kappa, 32": (0.686, 0.688, 0.664, 0.664),
        }
    )
    kendall = by_row(
        {
            "M, 4": (0.550, 0.552, 0.499, 0.539),
            "M, 8": (0.556, 0.559, 0.515, 0.550),
            "M, 16": (0.558, 0.559, 0.535, 0.556),
            "M, 32": (0.560, 0.562, 0.543, 0.558),
            "kappa, 4": (0.560, 0.562, 0.543, 0.558),
            "kappa, 8": (0.529, 0.531, 0.512, 0.522),
            "kappa, 16": (0.511, 0.514, 0.492, 0.498),
            "kappa, 32": (0.501, 0.503, 0.481, 0.484),
        }
    )

    def usual(self, settings: Extent) -> int:
        return nb201.WIDTHS[0]

    def ways(self, settings: Extent) -> dict[str, tuple[int, int]]:
        return {
            **{f"M, {channels}": (channels, min(CHANNELS)) for channels in CHANNELS},
            **{f"kappa, {channels}": (max(CHANNELS), channels) for channels in CHANNELS},
        }

    def task(self, task: Task, way: int, images: str, seed: int) -> Task:
        return replace(task, space=Widened(way))
