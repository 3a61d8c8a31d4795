"""NASI, Figure 3: test accuracy against the approximate trace norm in NAS-Bench-1Shot1.

The figure shows mean test errors in bins of the norm: they fall, then rise. No figure is printed; here each network is
one point, with Spearman's and Kendall's correlation over all of them. Otherwise as Table 3.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Appendix C.1
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Extent, Figures
from epochzero_papers.nasi.one_shot_spaces import OneShotCorrelations


@experiment
class NasiFigure3(OneShotCorrelations):
    """The trace norm alone."""

    name = "nasi-figure3"
    source = "NASI (arXiv:2109.00817), Figure 3"
    full = Extent(networks=500)
    quick = Extent(networks=5, batch_size=8, spaces=("nb1shot1_s1",))
    spearman: ClassVar[Figures] = {"nasi_trace": (None, None, None)}
    kendall = spearman
