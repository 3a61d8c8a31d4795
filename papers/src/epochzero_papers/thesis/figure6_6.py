"""Thesis, Figure 6.6: what NASI's constraint nu and penalty mu do to the cells that it selects.

The figure is of the DARTS space, where every cell has to be trained, and prints no figure: with nu or mu, test errors
fall to a minimum and rise again. Here the cells are of NAS-Bench-1Shot1, whose test errors are known
(`nasi/one_shot.py`), nu is a multiple of the mean trace norm of 50 networks (equation 40), and every nu is combined
with every mu.

Shu. Understanding and improving neural architecture search (thesis, section 6.6); NASI, arXiv:2109.00817.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from epochzero_papers.harness.base import experiment
from epochzero_papers.nasi.one_shot import Budget, OneShotSearches, Reading, Search

NUS = (0.1, 0.3, 1.0, 3.0, 10.0)
MUS = (0.5, 1.0, 2.0, 4.0)


@experiment
class ThesisFigure66(OneShotSearches):
    """Twenty pairs from one recording for each seed."""

    name = "thesis-figure6.6"
    source = "Shu, thesis (NASI, arXiv:2109.00817), Figure 6.6"
    unmeasured = ("The DARTS space is left out: each of its cells takes 600 epochs of training.",)

    def searches(self, settings: Budget) -> Sequence[Search]:
        pairs = product(NUS, MUS)
        readings = [Reading(f"nu {nu:g} x mean, mu {mu:g}", settings.steps, nu, mu) for nu, mu in pairs]
        return [Search(settings.batch_size, {}, readings)]
