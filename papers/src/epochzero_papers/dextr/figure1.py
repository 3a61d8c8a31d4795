"""Dextr, Figure 1: feature map independence against accuracy, and against training losses, on NAS-Bench-201.

The left panel of (a): one point for each network, `fmi` and its validation accuracy on CIFAR-10. The right panel:
networks with a high `fmi` learn faster. No figure is printed, nor how the panel's networks were trained; here the
networks with the highest and the lowest values of the sample are trained with the same recipe (SGD, rate .1 annealed to
0, momentum .9, weight decay 5e-4, batches of 128, random crops and flips), and the rows are mean training losses after
each epoch.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from epochzero import data
from epochzero.data.batch import digest
from epochzero.registry import spaces
from epochzero.train.image_data import Images, load_images
from epochzero.train.recipes import Recipe
from epochzero_papers.harness.base import Measurement, Row, Sample, Work, experiment
from epochzero_papers.harness.correlations import NB201_C10, Correlations, Extent, Figures, Group, Merits
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.training import some, trained

CURVES = "training"


@dataclass(frozen=True)
class Convergence(Extent):
    """The number of networks that are trained from each end, and the length of training."""

    ends: int = 3
    epochs: int = 10
    images: int | None = None
    """training images; all if None"""


@experiment
class DextrFigure1(Correlations):
    """The first term of Dextr."""

    name = "dextr-figure1"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Figure 1"
    full: Convergence = Convergence(networks=1000)
    quick: Convergence = Convergence(networks=8, batch_size=16, spaces=("nb201",), ends=1, epochs=2, images=256)
    targets = (replace(NB201_C10, label="NB201-C10 validation", column="cifar10_val"),)
    spearman: ClassVar[Figures] = {"fmi": (None,)}
    unmeasured = ("The curves of outputs of panel (b) are drawn by `epochzero analyze curve`.",)

    def beside(self, work: Work, group: Group, merits: Merits) -> Measurement:
        """Losses of the networks at both ends, epoch by epoch."""
        if group.images in data.NOISE:
            return Measurement([], {}, ["Losses in training are left out: noise has nothing to be learnt."])
        settings: Convergence = work.settings
        images = some(load_images(group.images, seed=work.seed), settings.images)
        scores = merits["fmi"][0]
        order = sorted((i for i, score in enumerate(scores) if score.ok), key=lambda i: scores[i].value)
        ends = {"highest fmi": order[::-1][: settings.ends], "lowest fmi": order[: settings.ends]}
        rows, curves = [], {"epoch": [float(epoch) for epoch in range(1, settings.epochs + 1)]}
        for end, places in ends.items():
            losses = [self._losses(work, group, place, images) for place in places]
            means = [estimate(values) for values in zip(*losses, strict=True)]
            label = f"loss of the {len(places)} with the {end}"
            curves[label] = [mean.value for mean in means]
            rows += [Row(CURVES, "epoch", label, f"epoch {e}", mean, 0) for e, mean in enumerate(means, start=1)]
        about = f"{len(images.y)} images of {Path(group.images).name} to train on."
        archs = [f"epoch {epoch:g}" for epoch in curves["epoch"]]
        return Measurement(rows, {CURVES: Sample.measured("nb201", curves, about, archs)})

    def _losses(self, work: Work, group: Group, place: int, images: Images) -> list[float]:
        settings: Convergence = work.settings
        arch, text = group.job.archs[place], group.job.texts[place]
        recipe = Recipe(epochs=settings.epochs)
        facts = {"experiment": self.name, "arch": text}
        name = digest(text)[:16]
        network = trained(work, name, spaces["nb201"], arch, images, recipe, seed=work.seed, facts=facts)
        return [epoch["loss"] for epoch in network.history]
