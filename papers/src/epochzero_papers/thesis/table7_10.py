"""Thesis, Table 7.10: the non-realizable guarantee on NAS-Bench-201, by batch size.

The batch of the metric M, or that of the condition number kappa, has 4 to 64 samples, the other one 64. mu and nu are
tuned with 64 for both, on the first half of the networks (see `guarantees.py`); the figures are of the other half, the
thesis' of all networks. The small form has at most 16 samples in place of 64, and no more rows.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from dataclasses import replace

from epochzero.engine.space_networks import batch_for
from epochzero.study.task import Task
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Extent
from epochzero_papers.thesis.ablation import Ablation, by_row

SIZES = (4, 8, 16, 32, 64)


@experiment
class ThesisTable710(Ablation):
    """Four metrics, five batch sizes, twice."""

    name = "thesis-table7.10"
    source = "Shu, thesis, Table 7.10"
    quick = Extent(networks=16, batch_size=16)
    spearman = by_row(
        {
            "M, b = 4": (0.737, 0.741, 0.671, 0.684),
            "M, b = 8": (0.739, 0.743, 0.676, 0.689),
            "M, b = 16": (0.747, 0.748, 0.685, 0.690),
            "M, b = 32": (0.750, 0.748, 0.687, 0.690),
            "M, b = 64": (0.750, 0.748, 0.686, 0.697),
            "kappa, b = 4": (0.578, 0.585, 0.569, 0.509),
            "kappa, b = 8": (0.597, 0.603, 0.591, 0.542),
            "kappa, b = 16": (0.628, 0.633, 0.620, 0.582),
            "kappa, b = 32": (0.663, 0.666, 0.645, 0.621),
            "kappa, b = 64": (0.750, 0.748, 0.686, 0.697),
        }
    )
    kendall = by_row(
        {
            "M, b = 4": (0.547, 0.550, 0.487, 0.501),
            "M, b = 8": (0.549, 0.552, 0.492, 0.506),
            "M, b = 16": (0.556, 0.556, 0.499, 0.507),
            "M, b = 32": (0.558, 0.556, 0.502, 0.506),
            "M, b = 64": (0.559, 0.556, 0.501, 0.512),
            "kappa, b = 4": (0.416, 0.421, 0.402, 0.362),
            "kappa, b = 8": (0.429, 0.433, 0.419, 0.386),
            "kappa, b = 16": (0.462, 0.455, 0.442, 0.414),
            "kappa, b = 32": (0.479, 0.481, 0.462, 0.445),
            "kappa, b = 64": (0.559, 0.556, 0.501, 0.512),
        }
    )

    def usual(self, settings: Extent) -> int:
        return settings.batch_size

    def ways(self, settings: Extent) -> dict[str, tuple[int, int]]:
        largest = settings.batch_size
        sizes = [size for size in SIZES if size <= largest]
        return {
            **{f"M, b = {size}": (size, largest) for size in sizes},
            **{f"kappa, b = {size}": (largest, size) for size in sizes},
        }

    def task(self, task: Task, way: int, images: str, seed: int) -> Task:
        return replace(task, batch=batch_for(task.space, images, size=way, seed=seed))
