"""NASI, Table 3 and Figure 3 in the one-shot network: each cell is a part of one network with shared weights.

The one-shot network of `supernet/nb1shot1.py` (16 channels, 9 cells) with weights N(0, 1/fan in), as in NASI's own
search; a batch of 16. A cell keeps the weights that it has there, so that cells share those of their common parts. The
paper's figures 1 and 3 have trace norms up to a thousand, which are those of this network and not of the benchmark's.
`synflow(norm=train)` is SynFlow with batch norms, compared with the paper's figure for SynFlow.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Appendix C
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch

from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.nb1shot1 import NB1Shot1
from epochzero.spaces.nb101_cell import OPS, Cell
from epochzero.supernet.relaxed import Picks, Relaxed, relax
from epochzero.types import Shape
from epochzero_papers.harness.base import Work, experiment
from epochzero_papers.harness.correlations import Extent, Figures, Group, Merits
from epochzero_papers.harness.scoring import Job
from epochzero_papers.nasi.one_shot_spaces import TARGETS
from epochzero_papers.nasi.table3 import NasiTable3

INIT = "lecun"
SYNFLOW = "synflow(norm=train)"


@dataclass(frozen=True)
class OneShot(NB1Shot1):
    """A space whose networks are parts of one network."""

    channels: int = 16
    cells: int = 0
    """of each stage; the paper's number if 0"""

    @classmethod
    def of(cls, space: NB1Shot1, channels: int, cells: int) -> OneShot:
        name = f"{space.name}_one_shot_{channels}x{cells}"
        return cls(name, space.degrees, space.cheapest, channels=channels, cells=cells)

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        whole = _relaxed(self, num_classes, input_shape)
        picks = picks_of(arch)
        rows = (torch.zeros(len(choice.options)) for choice in whole.choices)
        return whole.network(
            [row.index_fill(0, torch.tensor(picks[of.name]), 1) for row, of in zip(rows, whole.choices, strict=True)]
        )


@lru_cache(maxsize=8)
def _relaxed(space: OneShot, num_classes: int, input_shape: Shape) -> Relaxed:
    return relax(space, num_classes, input_shape, space.channels, space.cells)


def picks_of(cell: Cell) -> Picks:
    """Returns the options of the one-shot network that make up a cell."""
    ops = {f"op{vertex}": (OPS.index(op),) for vertex, op in enumerate(cell.ops, start=1)}
    return ops | {f"from{vertex}": sources for vertex, sources in enumerate(cell.sources, start=1)}


@dataclass(frozen=True)
class OneShotExtent(Extent):
    """The size of the one-shot network."""

    channels: int = 16
    cells: int = 0


@experiment
class NasiTable3OneShot(NasiTable3):
    """The metrics of Table 3 in the one-shot network."""

    name = "nasi-table3-one-shot"
    source = "NASI (arXiv:2109.00817), Table 3 and Figure 3"
    full: OneShotExtent = OneShotExtent(networks=500, batch_size=16, repeats=2)
    quick: OneShotExtent = OneShotExtent(networks=7, batch_size=4, spaces=("nb1shot1_s1",), channels=4, cells=1)
    takes_scores = False
    targets = tuple(replace(target, init=INIT) for target in TARGETS)
    spearman: ClassVar[Figures] = {**NasiTable3.spearman, SYNFLOW: NasiTable3.spearman["synflow"]}
    kendall: ClassVar[Figures] = {**NasiTable3.kendall, SYNFLOW: NasiTable3.kendall["synflow"]}

    def merits(self, work: Work, groups: Sequence[Group]) -> Iterator[tuple[Merits, list[str]]]:
        settings: OneShotExtent = work.settings
        return super().merits(work, [within(group, settings.channels, settings.cells) for group in groups])


def within(group: Group, channels: int, cells: int) -> Group:
    """Returns the same cells as parts of one network."""
    space: Any = OneShot.of(spaces[group.targets[0].space], channels, cells)
    tasks = [replace(task, space=space) for task in group.job.tasks]
    return replace(group, job=Job(group.job.archs, tasks))
