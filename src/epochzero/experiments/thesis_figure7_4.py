"""Thesis, Figure 7.4: test accuracy against the metrics and against the condition number on NAS-Bench-201.

The figure groups the networks into 20 bins of each metric and shows (a) the mean test error of each bin, (b) within
each bin the correlation of the condition number with the test error. No figure is printed. Here each network is one
point, with the correlations over all of them.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from epochzero.experiments.correlations import NB201_C10, Correlations, Extent
from epochzero.registry import experiments


class ThesisFigure74(Correlations):
    """Four metrics and kappa."""

    name = "thesis-figure7.4"
    source = "Shu, thesis, Figure 7.4"
    full = Extent(networks=1000)
    quick = Extent(networks=16, batch_size=8)
    targets = (NB201_C10,)
    spearman = dict.fromkeys(("grad_norm", "snip", "grasp", "ntk_trace", "ntk_cond"), (None,))
    kendall = spearman
    later = ("The correlation within each of the 20 bins is left out: it comes with the analyses of step 9.",)


experiments.register(ThesisFigure74.name, ThesisFigure74(), origin=__name__)
