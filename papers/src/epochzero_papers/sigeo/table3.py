"""SiGeo, Table 3: ZiCo and SiGeo after 0, 10, 20 and 40 % of an epoch of warm-up.

Each network is trained for that share of the steps of the paper's epoch, 78 for 10 % of 50,000 images at batch 64, with
repeated passes over a smaller set if necessary, then scored on the next four batches. SiGeo's weights l1, l2, l3 are 1,
1, 0 without and 1, 50, 1 after a warm-up. The paper gives neither optimiser nor number of networks: here SGD with
momentum .9, Nesterov, weight decay 5e-4 and a constant rate of .025, and 150 networks. Each benchmark's networks are
trained on its own images, on CIFAR-10 if those images are missing, which the result reports. To train on a GPU, see
`sigeo/warm_up.py`.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from epochzero.objectives.objective import Objective, parse_objective
from epochzero_papers.harness.base import Work, experiment
from epochzero_papers.harness.correlations import Correlations, Extent, Figures, Group, Merits, as_scores
from epochzero_papers.sigeo.table2 import SigeoTable2
from epochzero_papers.sigeo.warm_up import WARM, ZERO_SHOT, ZICO, WarmUp

LEVELS = (0, 10, 20, 40)
"""percent"""


@dataclass(frozen=True)
class Warmth(Extent):
    """The length of an epoch."""

    images: int = 50_000

    def steps(self, percent: int) -> int:
        return percent * self.images // (100 * self.batch_size)


@experiment
class SigeoTable3(Correlations):
    """Two proxies at four levels."""

    name = "sigeo-table3"
    source = "SiGeo (arXiv:2311.13169), Table 3"
    full: Warmth = Warmth(networks=150)
    quick: Warmth = Warmth(networks=4, batch_size=8, images=640, spaces=("nb201",))
    takes_scores = False
    targets = SigeoTable2.targets
    spearman: ClassVar[Figures] = {
        "zico, 0 %": (0.63, 0.74, 0.78, 0.79, 0.50),
        "zico, 10 %": (0.63, 0.78, 0.81, 0.80, 0.51),
        "zico, 20 %": (0.64, 0.77, 0.81, 0.79, 0.51),
        "zico, 40 %": (0.64, 0.78, 0.80, 0.79, 0.52),
        "sigeo, 0 %": (0.63, 0.78, 0.82, 0.80, 0.50),
        "sigeo, 10 %": (0.68, 0.83, 0.85, 0.85, 0.53),
        "sigeo, 20 %": (0.69, 0.84, 0.87, 0.86, 0.55),
        "sigeo, 40 %": (0.70, 0.83, 0.88, 0.87, 0.56),
    }
    kendall: ClassVar[Figures] = {
        "zico, 0 %": (0.46, 0.54, 0.58, 0.60, 0.35),
        "zico, 10 %": (0.46, 0.58, 0.61, 0.60, 0.36),
        "zico, 20 %": (0.46, 0.57, 0.62, 0.59, 0.36),
        "zico, 40 %": (0.46, 0.58, 0.61, 0.59, 0.36),
        "sigeo, 0 %": (0.46, 0.58, 0.62, 0.61, 0.35),
        "sigeo, 10 %": (0.48, 0.64, 0.66, 0.67, 0.37),
        "sigeo, 20 %": (0.51, 0.65, 0.69, 0.68, 0.40),
        "sigeo, 40 %": (0.52, 0.64, 0.70, 0.69, 0.41),
    }

    @property
    def objectives(self) -> Sequence[Objective]:
        return [parse_objective(text) for text in (ZICO, ZERO_SHOT, WARM)]

    def merits(self, work: Work, groups: Sequence[Group]) -> Iterator[tuple[Merits, list[str]]]:
        """Train and score."""
        settings: Warmth = work.settings
        run = work.begin(jobs=[group.job.digest for group in groups])
        total, done = sum(len(group.job.archs) for group in groups), 0
        steps = {percent: settings.steps(percent) for percent in LEVELS}
        for group in groups:
            space = group.job.tasks[0].space
            warm = WarmUp.on(space, group.images, settings.batch_size, work.seed, work.device)
            results = []
            for scores in warm.evaluate(group.job.archs, sorted(set(steps.values())), work.store, run):
                results.append(scores)
                done += 1
                work.progress(done, total)
            merits = {}
            for name in self.spearman:
                proxy, _, percent = name.removesuffix(" %").partition(", ")
                taken = steps[int(percent)]
                text = ZICO if proxy == "zico" else WARM if taken else ZERO_SHOT
                merits[name] = [as_scores(parse_objective(text), [scores[taken] for scores in results])]
            yield merits, [warm.about]
