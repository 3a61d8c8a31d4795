"""Thesis, Table 4.2: width and depth of popular cells and of random variants of their connections.

Counted on the normal cell, width in units of its channels c (`epochzero.analysis.topology`). The thesis prints 13
variants of each of four cells, sorted by width, without their connections: the figures here are those of the widest,
narrowest, deepest and shallowest of as many random ones, mean over `repeats` samples of them. SNAS is printed in Figure
4.1 alone.

Shu. Understanding and improving neural architecture search (thesis, chapter 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from epochzero.analysis.topology import KNOWN, Topology, random_connections, topologies
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import grid, quoted

OF_CELL: Mapping[str, Callable[[Topology], float]] = {"width": lambda t: t.width, "depth": lambda t: t.depth}
OF_VARIANTS: Mapping[str, Callable[[Sequence[Topology]], float]] = {
    "narrowest variant": lambda found: min(t.width for t in found),
    "widest variant": lambda found: max(t.width for t in found),
    "shallowest variant": lambda found: min(t.depth for t in found),
    "deepest variant": lambda found: max(t.depth for t in found),
}
PAPER = grid(
    (*OF_CELL, *OF_VARIANTS),
    {
        "DARTS": (3.5, 3, 2, 3.5, 3, 4),
        "ENAS": (5, 2, 1.5, 3.5, 3, 6),
        "AmoebaNet": (4, 4, 1.5, 3.5, 3, 6),
        "NASNet": (5, 2, 1.5, 3.5, 3, 6),
        "SNAS": (4, 2, None, None, None, None),
    },
)


@experiment
class ThesisTable42(Recipe):
    """Counts alone."""

    name = "thesis-table4.2"
    source = "Shu, thesis, Table 4.2 and Figure 4.1"
    full = Settings(networks=13, repeats=100)
    quick = Settings(networks=13, repeats=10)

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(PAPER, "as named")

    def measure(self, work: Work) -> Measurement:
        work.begin()
        rows: list[Row] = []
        values: dict[str, Sequence[float | None]] = {}
        for done, (name, arch) in enumerate(KNOWN.items()):
            work.progress(done, len(KNOWN))
            rng = Random(f"{work.seed} {name}")
            drawn = [
                [topologies(random_connections(arch, rng))["normal"] for _ in range(work.settings.networks)]
                for _ in range(work.settings.repeats)
            ]
            figures = {what: [count(topologies(arch)["normal"])] for what, count in OF_CELL.items()}
            figures |= {what: [count(variants) for variants in drawn] for what, count in OF_VARIANTS.items()}
            rows += [
                Row("darts", name, what, "as named", estimate(found), 0, PAPER[name].get(what))
                for what, found in figures.items()
            ]
            values[name] = [topology.width for variants in drawn for topology in variants]
        work.progress(len(KNOWN), len(KNOWN))
        about = "No data: counted on the cells; the histogram is of the variants' widths."
        return Measurement(rows, {"darts": Sample.measured("darts", values, about)})
