"""Thesis, Figure 7.2: the trace metric against the other gradient metrics.

Spearman's correlation, by the protocol of Table 7.4. The figures in the corners of the panels are not in the text that
we have; the paper's figures here are those of Table 7.4, of the same metrics on the same networks.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from collections.abc import Sequence

from epochzero_papers.harness.base import Settings, experiment
from epochzero_papers.harness.score_pairs import Column, Load, Pair
from epochzero_papers.thesis.table7_4 import ThesisTable74


@experiment
class ThesisFigure72(ThesisTable74):
    """Three of the table's pairs."""

    name = "thesis-figure7.2"
    source = "Shu, thesis, Figure 7.2"

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        wanted = {name for pair in self.pairs(settings) for name in (pair.x, pair.y)}
        return [column for column in super().columns(settings, load, seed) if column.name in wanted]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        return [
            Pair(pair.x, pair.y, {"spearman": pair.paper["spearman"]})
            for pair in super().pairs(settings)
            if pair.y == "trace" and pair.x in ("grad", "snip", "grasp")
        ]
