"""Thesis, Table 7.5: what the trade-off and the condition number add to a training-free metric on NAS-Bench-201.

    realizable               1/M
    realizable + kappa       kappa/M
    realizable + trade-off   1/M + mu (M^2 - nu)^2
    non-realizable           kappa/M + mu (M^2 - nu)^2

The last two are tuned as in `guarantees.py`, each by itself, where the thesis takes the parameters of the last for
both. Otherwise as Table 7.1, for three datasets.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import NB201_C10, NB201_C100, NB201_IN16, Figures
from epochzero_papers.thesis.guarantees import (
    Guarantees,
    by_metric,
    realizable,
    tuned_ones,
    with_kappa,
    with_trade_off,
)


@experiment
class ThesisTable75(Guarantees):
    """Four scenarios."""

    name = "thesis-table7.5"
    source = "Shu, thesis, Table 7.5"
    targets = (NB201_C10, NB201_C100, NB201_IN16)
    spearman: ClassVar[Figures] = {
        **by_metric(
            realizable, [(0.637, 0.639, 0.566, 0.538), (0.638, 0.638, 0.571, 0.535), (0.578, 0.578, 0.550, 0.486)]
        ),
        **by_metric(
            with_kappa, [(0.724, 0.728, 0.658, 0.657), (0.716, 0.719, 0.649, 0.651), (0.646, 0.649, 0.612, 0.587)]
        ),
        **by_metric(
            with_trade_off,
            [(0.642, 0.641, 0.570, 0.549), (0.642, 0.645, 0.578, 0.546), (0.588, 0.589, 0.566, 0.526)],
        ),
        **tuned_ones(
            [(0.750, 0.748, 0.686, 0.697), (0.740, 0.746, 0.680, 0.686), (0.682, 0.685, 0.655, 0.660)],
        ),
    }
    kendall: ClassVar[Figures] = {
        **by_metric(
            realizable, [(0.469, 0.472, 0.400, 0.387), (0.473, 0.475, 0.409, 0.385), (0.430, 0.433, 0.397, 0.354)]
        ),
        **by_metric(
            with_kappa, [(0.530, 0.533, 0.474, 0.474), (0.527, 0.529, 0.469, 0.470), (0.472, 0.474, 0.443, 0.423)]
        ),
        **by_metric(
            with_trade_off,
            [(0.475, 0.474, 0.403, 0.397), (0.476, 0.481, 0.414, 0.394), (0.438, 0.441, 0.408, 0.382)],
        ),
        **tuned_ones(
            [(0.559, 0.556, 0.501, 0.512), (0.552, 0.557, 0.498, 0.504), (0.505, 0.506, 0.480, 0.482)],
        ),
    }
