"""NASI, Table 3: rank correlation of training-free metrics with test accuracy in NAS-Bench-1Shot1.

Spearman's and Kendall's correlation with the test accuracy on CIFAR-10, one random mini-batch, metrics as published
with Abdelfattah et al. (2021). The paper does not say how many networks, nor the batch size; here the search's 64. A
space's accuracies are those of its cells in NAS-Bench-101, of which the table at hand may hold a part.

The paper gives the trace norm "conditioned" alone: of the networks below the constraint nu of its search. It does not
say which nu; here it is the mean of the trace norm over the networks of the sample, which is its rule for a fixed one
(equation 40). The trace norm of all networks is added.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Appendix C.2
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from epochzero.objectives.objective import Objective, parse_objective
from epochzero.types import Score
from epochzero_papers.harness.base import Work, experiment
from epochzero_papers.harness.correlations import Extent, Figures, Group, Merits, as_scores
from epochzero_papers.harness.scoring import score_all
from epochzero_papers.nasi.one_shot_spaces import OneShotCorrelations

TRACE = "nasi_trace"
CONDITIONED = f"{TRACE}, conditioned"


@experiment
class NasiTable3(OneShotCorrelations):
    """Four metrics and the trace norm."""

    name = "nasi-table3"
    source = "NASI (arXiv:2109.00817), Table 3"
    full = Extent(networks=500, repeats=1)
    quick = Extent(networks=7, batch_size=8, spaces=("nb1shot1_s1",))
    spearman: ClassVar[Figures] = {
        "snip": (-0.49, -0.62, -0.79),
        "grasp": (0.41, 0.54, 0.17),
        "synflow": (-0.52, -0.45, -0.53),
        "naswot": (0.21, 0.32, 0.54),
        TRACE: (None, None, None),
        CONDITIONED: (0.62, 0.74, 0.76),
    }
    kendall: ClassVar[Figures] = {
        "snip": (-0.39, -0.49, -0.63),
        "grasp": (0.33, 0.42, 0.15),
        "synflow": (-0.42, -0.40, -0.47),
        "naswot": (0.16, 0.24, 0.44),
        TRACE: (None, None, None),
        CONDITIONED: (0.44, 0.53, 0.53),
    }

    @property
    def objectives(self) -> Sequence[Objective]:
        return [parse_objective(text) for text in self.spearman if text != CONDITIONED]

    def merits(self, work: Work, groups: Sequence[Group]) -> Iterator[tuple[Merits, list[str]]]:
        for group, found in zip(groups, score_all(work, [group.job for group in groups]), strict=True):
            merits = {one.text: [as_scores(one, scores) for scores in found] for one in self.objectives}
            merits[CONDITIONED] = [below_the_mean(scores) for scores in merits[TRACE]]
            yield merits, [task.batch.about for task in group.job.tasks]


def below_the_mean(scores: Sequence[Score]) -> list[Score]:
    """Returns the scores below the constraint."""
    known = [score.value for score in scores if score.ok]
    nu = sum(known) / len(known) if known else math.nan
    above = Score.degenerate("its trace norm is above nu, the mean of the sample")
    return [above if score.ok and score.value > nu else score for score in scores]
