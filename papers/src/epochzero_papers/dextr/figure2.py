"""Dextr, Figure 2: the variation of Dextr over images and circles.

Ten networks of NAS-Bench-201 with test accuracies on CIFAR-10 spread evenly from 50 to 90 %, each the nearest to its
target; the paper does not say how it drew its ten. For each, ten values of Dextr with the same weights: ten images of
CIFAR-10, and a random circle with each. The figures are the lowest and the highest mean and deviation over the
networks, and Spearman's correlation of the means with the accuracies. The paper says 1.32 for the mean of its least
accurate network and 2.34 for its most accurate. `dextr-figure2-code` takes the values as the authors' code has them
(`variant=reference` of `epochzero list proxies --card dextr`), with a seed for each image's circle and outputs.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from epochzero.analysis.curves import dextr_of_each
from epochzero.data import Batch
from epochzero.engine.space_networks import batch_for, network_of
from epochzero.errors import DegenerateError, UserError
from epochzero.registry import spaces
from epochzero.stats import Estimate, spearman
from epochzero.tables import AccuracyTable
from epochzero.types import Origin
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.files import CIFAR10, NB201

MEAN, SPREAD, ACCURACY = "mean over inputs", "std over inputs", "test accuracy %"
PAPER = {(MEAN, "least"): 1.32, (MEAN, "most"): 2.34, (SPREAD, "least"): 0.01, (SPREAD, "most"): 0.05}


@dataclass(frozen=True)
class Stability(Settings):
    """`networks`, and the number of images and circles for each."""

    networks: int = 10
    batch_size: int = 10
    low: float = 50.0
    high: float = 90.0


@experiment
class DextrFigure2(Recipe):
    """Values of Dextr over images and circles."""

    name = "dextr-figure2"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Figure 2"
    full: Stability = Stability()
    quick: Stability = Stability(networks=4, batch_size=3)
    needs = (CIFAR10, NB201)
    variant = "paper"

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [Quoted(x, y, "as named", value) for (x, y), value in PAPER.items()]

    def measure(self, work: Work) -> Measurement:
        settings: Stability = work.settings
        if settings.batch_size < 2:
            raise UserError("A deviation over images takes at least 2 of them.")
        chosen, batch = opened(work, "cifar10_test", settings.batch_size).nearest(
            np.linspace(settings.low, settings.high, settings.networks).tolist()
        )
        space = spaces["nb201"]
        work.begin(networks=[text for text, _ in chosen], batch=batch.id)
        means, spreads, unscored = [], [], {}
        for done, (text, _) in enumerate(chosen):
            work.progress(done, len(chosen))
            network = network_of(space, space.parse(text), batch, Origin(seed=work.seed), work.device)
            try:
                values = dextr_of_each(network, batch, settings.batch_size, seed=work.seed, variant=self.variant)
            except DegenerateError as reason:
                unscored[text] = str(reason)
                continue
            means.append(float(np.mean(values)))
            spreads.append(float(np.std(values, ddof=1)))
        work.progress(len(chosen), len(chosen))
        scored = [(text, accuracy) for text, accuracy in chosen if text not in unscored]
        columns = {MEAN: means, SPREAD: spreads, ACCURACY: [accuracy for _, accuracy in scored]}
        rows = [
            Row("nb201", x, y, "as named", _extreme(columns[x], y), len(unscored), paper)
            for (x, y), paper in PAPER.items()
        ]
        try:
            correlation, why = spearman(means, columns[ACCURACY], seed=work.seed), ""
        except DegenerateError as reason:
            correlation, why = None, str(reason)
        rows.append(Row("nb201", MEAN, ACCURACY, "spearman", correlation, len(unscored), why=why))
        reasons = {MEAN: {why: list(unscored.values()).count(why) for why in unscored.values()}}
        about = f"{batch.about} A circle with each image."
        texts = [text for text, _ in scored]
        return Measurement(rows, {"nb201": Sample.measured("nb201", columns, about, texts, reasons)})


@experiment
class DextrFigure2Code(DextrFigure2):
    """Values of the authors' form of Dextr over images and circles."""

    name = "dextr-figure2-code"
    variant = "reference"


def _extreme(values: Sequence[float], which: str) -> Estimate | None:
    if not values:
        return None
    value = min(values) if which == "least" else max(values)
    return Estimate(value, value, value, len(values))


class Opened(NamedTuple):
    """A table of accuracies and images."""

    table: AccuracyTable
    column: str
    batch: Batch

    def nearest(self, accuracies: Sequence[float]) -> tuple[list[tuple[str, float]], Batch]:
        """Returns distinct networks with accuracies nearest to these, their accuracies, and the images."""
        known = self.table.column(self.column).copy()
        chosen = []
        for wanted in accuracies:
            place = int(np.nanargmin(np.abs(known - wanted)))
            chosen.append((self.table.archs[place], float(known[place])))
            known[place] = np.nan
        return chosen, self.batch


def opened(work: Work, column: str, size: int) -> Opened:
    """Returns the table and the images of an experiment with networks of NAS-Bench-201."""
    images, table = work.images(NB201)
    batch = batch_for(spaces["nb201"], images, size=size, parts=1, seed=work.seed)
    return Opened(AccuracyTable.read(table), column, batch)
