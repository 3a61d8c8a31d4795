"""Thesis, Figure 7.4: test accuracy against the metrics and against the condition number on NAS-Bench-201.

The figure groups the networks into 20 bins of each metric and shows (a) the mean test error of each bin, (b) within
each bin the correlation of the condition number kappa with the test error, positive where a small kappa goes with a
small error. No figure is printed. Here bins hold equally many networks, in the order of the metric's first draw of
weights; bin 1 has the networks that the metric ranks lowest. The correlations over all networks are added.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from epochzero.errors import DegenerateError
from epochzero.stats import spearman
from epochzero.stats.bootstrap import Floats
from epochzero.stats.within import equal_bins
from epochzero.types import Score
from epochzero_papers.harness.base import Measurement, Row, Sample, Work, experiment
from epochzero_papers.harness.correlations import NB201_C10, Correlations, Extent, Group, Merits
from epochzero_papers.harness.estimates import estimate

METRICS = ("grad_norm", "snip", "grasp", "ntk_trace")
KAPPA = "ntk_cond"
ERROR, CORRELATION = "mean test error %", f"spearman of {KAPPA}"


@dataclass(frozen=True)
class Binned(Extent):
    """The number of bins."""

    bins: int = 20


@experiment
class ThesisFigure74(Correlations):
    """Four metrics and kappa."""

    name = "thesis-figure7.4"
    source = "Shu, thesis, Figure 7.4"
    full: Binned = Binned(networks=1000)
    quick: Binned = Binned(networks=16, batch_size=8, bins=4)
    targets = (NB201_C10,)
    spearman = dict.fromkeys((*METRICS, KAPPA), (None,))
    kendall = spearman

    def beside(self, work: Work, group: Group, merits: Merits) -> Measurement:
        """Returns both panels of each metric."""
        error = 100 - group.truth[NB201_C10.label]
        bins = [in_bins(name, merits[name][0], merits[KAPPA][0], error, work) for name in METRICS]
        return Measurement(
            [row for rows, _ in bins for row in rows], {rows[0].sample: one for rows, one in bins if rows}
        )


def in_bins(
    metric: str, scores: Sequence[Score], kappas: Sequence[Score], error: Floats, work: Work
) -> tuple[list[Row], Sample]:
    """Returns mean error and kappa's correlation with it in each bin of one metric, as rows and as curves."""
    has = [i for i, (score, kappa) in enumerate(zip(scores, kappas, strict=True)) if score.ok and kappa.ok]
    merit, kappa, error = np.array([scores[i].value for i in has]), np.array([kappas[i].value for i in has]), error[has]
    bin_of = equal_bins(merit, work.settings.bins)
    name, mean = f"bins of {metric}", f"{metric}, mean"
    rows: list[Row] = []
    curves: dict[str, list[float | None]] = {mean: [], "bin": [], ERROR: [], CORRELATION: []}
    for one in np.unique(bin_of).tolist():
        inside = bin_of == one
        average = estimate(error[inside].tolist())
        try:
            order, why = spearman(kappa[inside], -error[inside], seed=work.seed), ""
        except DegenerateError as reason:
            order, why = None, str(reason)
        rows.append(Row(name, mean, ERROR, f"bin {one + 1}", average, len(scores) - len(has)))
        rows.append(Row(name, "bin", CORRELATION, f"bin {one + 1}", order, len(scores) - len(has), why=why))
        values = (float(merit[inside].mean()), one + 1, average.value, None if order is None else order.value)
        for curve, value in zip(curves.values(), values, strict=True):
            curve.append(value)
    about = dict.fromkeys(curves, f"the networks that have {metric} and {KAPPA}.")
    archs = [f"bin {number:g}" for number in curves["bin"] if number is not None]
    return rows, Sample("nb201", archs, {}, curves, about, {})
