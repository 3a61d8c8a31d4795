r"""Thesis, Table 7.2: width, depth, trace metric and condition number of popular cells, and of the widest and deepest.

    M_Trace = sqrt(trace / m)      kappa = lambda_max / lambda_min      of the tangent kernel of m samples

at initialisation, mean over draws of weights and images; width and depth as in Table 4.2. Both come from one kernel of
the logit of each sample's class, as HNAS's metric does (`ntk_trace` and `ntk_cond`). The thesis prints mean and
deviation and says neither the networks' size nor the batch; here they are those of DARTS's search, 16 channels and 8
cells, and batches of 64. Nor does it say which operations its WIDE and DEEP cells have: here DARTS's, each node
reading the two inputs, or the two nodes before it.

Shu. Understanding and improving neural architecture search (thesis, section 7.5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from epochzero.analysis.topology import CELLS, topologies
from epochzero.data import load
from epochzero.spaces.darts import Darts
from epochzero.study.task import Task
from epochzero.types import Origin
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.estimates import DEVIATION, estimate
from epochzero_papers.harness.figures import grid, quoted
from epochzero_papers.harness.files import CIFAR10
from epochzero_papers.harness.score_pairs import reasons
from epochzero_papers.harness.scoring import Job, score_all
from epochzero_papers.thesis.known_cells import KAPPA, TRACE, m_trace

PRINTED = ("width", "depth", "M_trace", "M_trace deviation", "kappa", "kappa deviation")
PAPER = grid(
    PRINTED,
    {
        "NASNet": (5.0, 2, 31, 2, 118, 41),
        "AmoebaNet": (4.0, 4, 36, 2, 110, 39),
        "ENAS": (5.0, 2, 36, 2, 98, 33),
        "DARTS": (3.5, 3, 33, 2, 122, 58),
        "SNAS": (4.0, 2, 31, 2, 126, 47),
        "WIDE": (4.0, 2, 27, 1, 141, 36),
        "DEEP": (1.5, 5, 131, 16, 209, 107),
    },
)


@dataclass(frozen=True)
class Size(Settings):
    """The first `networks` cells of the table; `repeats` draws of each."""

    networks: int = len(CELLS)
    repeats: int = 10
    channels: int = 16
    cells: int = 8


@experiment
class ThesisTable72(Recipe):
    """Kernels of seven networks."""

    name = "thesis-table7.2"
    source = "Shu, thesis, Table 7.2"
    full: Size = Size()
    quick: Size = Size(batch_size=8, repeats=2, channels=4, cells=3)
    needs = (CIFAR10,)

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(PAPER, "as named")

    def measure(self, work: Work) -> Measurement:
        settings: Size = work.settings
        (images,) = work.images()
        space: Any = Darts(f"darts_{settings.channels}_{settings.cells}", settings.channels, settings.cells)
        chosen = dict(list(CELLS.items())[: settings.networks])
        tasks = [
            Task(
                space,
                [TRACE, KAPPA],
                load(images, size=settings.batch_size, parts=1, seed=seed),
                Origin(seed=seed),
                work.device,
            )
            for seed in range(work.seed, work.seed + settings.repeats)
        ]
        (scores_of,) = score_all(work, [Job(list(chosen.values()), tasks)])
        rows: list[Row] = []
        samples: dict[str, Sample] = {}
        for proxy, what in ((TRACE, "M_trace"), (KAPPA, "kappa")):
            values: dict[str, list[float | None]] = {}
            unscored = {}
            for place, name in enumerate(chosen):
                scores = [of_task[place][proxy.text] for of_task in scores_of]
                shown = [_shown(what, score.value, settings.batch_size) for score in scores if score.ok]
                rows += _rows(what, name, shown, len(scores) - len(shown))
                values[name], unscored[name] = list(shown), reasons(scores)
            about = f"{tasks[0].batch.about} Each repeat draws others."
            samples[what] = Sample.measured(space.name, values, about, list(chosen), unscored)
        shapes = {name: topologies(arch)["normal"] for name, arch in chosen.items()}
        for what, counts in (
            ("width", {name: shape.width for name, shape in shapes.items()}),
            ("depth", {name: float(shape.depth) for name, shape in shapes.items()}),
        ):
            rows += [_row(what, name, what, [count], 0) for name, count in counts.items()]
            counted = {name: [count] for name, count in counts.items()}
            about = "No data: counted on the normal cell."
            samples[what] = Sample.measured(space.name, counted, about, list(chosen))
        return Measurement(rows, samples)


def _shown(what: str, value: float, samples: int) -> float:
    return m_trace(value, samples) if what == "M_trace" else value


def _rows(what: str, name: str, values: Sequence[float], unscored: int) -> list[Row]:
    spread = [_row(what, name, f"{what} deviation", values, unscored)] if len(values) > 1 else []
    return [_row(what, name, what, values, unscored), *spread]


def _row(sample: str, name: str, what: str, values: Sequence[float], unscored: int) -> Row:
    paper = PAPER[name][what]
    if not values:
        return Row(sample, name, what, "as named", None, unscored, paper, "no draw of weights has a value")
    statistic = DEVIATION if what.endswith("deviation") else "mean"
    return Row(sample, name, what, "as named", estimate(values, statistic), unscored, paper)
