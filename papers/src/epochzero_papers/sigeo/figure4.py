"""SiGeo, Figure 4: its terms alone, on the best recommenders of each search.

As Table 5 at 1 % of warm-up (`table5.py` gives the scale), with ZiCo alone, the Fisher-Rao norm alone, the loss alone
and all of SiGeo. The plot has a box for each: the test log losses of the best 15 networks of its searches. Figures are
the mean of these, and the lowest of each search. The paper has the same boxes and prints no figure.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from epochzero.recommend.sub_one_shot import RecommenderResult
from epochzero_papers.harness.base import Quoted, experiment
from epochzero_papers.sigeo.table5 import LOSS, SMALL, FoundRecommenders, Searching, WarmSearch

LEVEL = 0.01


@experiment
class SigeoFigure4(FoundRecommenders):
    """Four scores."""

    name = "sigeo-figure4"
    source = "SiGeo (arXiv:2311.13169), Figure 4"
    full = replace(Searching(), top=15)
    quick = replace(SMALL, top=2)
    searches = (
        WarmSearch("ZiCo", "zico", LEVEL),
        WarmSearch("Fisher-Rao norm", "sigeo(weights=0/1/0)", LEVEL),
        WarmSearch("loss", "sigeo(weights=0/0/1)", LEVEL),
        WarmSearch("SiGeo", "sigeo", LEVEL),
    )
    quoted: Sequence[Quoted] = ()

    def figures(self, result: RecommenderResult) -> Mapping[str, Sequence[float]]:
        losses = [one.test_log_loss for one in result.candidates]
        return {LOSS: losses, f"lowest {LOSS}": [min(losses)]}
