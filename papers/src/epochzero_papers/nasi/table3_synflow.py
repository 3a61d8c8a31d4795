"""NASI, Table 3: SynFlow with and without batch norms, which decide the sign of its correlation.

SynFlow as published takes batch norms away. The paper's table has -.52, -.45 and -.53 for it, and says that its metrics
are those published with Abdelfattah et al. (2021), whose code does take them away. `synflow(norm=train)` leaves them
in. Networks and accuracies as in Table 3.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Appendix C.2
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Extent, Figures
from epochzero_papers.nasi.one_shot_spaces import OneShotCorrelations
from epochzero_papers.nasi.table3 import NasiTable3


@experiment
class NasiTable3SynFlow(OneShotCorrelations):
    """SynFlow, twice."""

    name = "nasi-table3-synflow"
    source = "NASI (arXiv:2109.00817), Table 3"
    full = Extent(networks=500, batch_size=2, repeats=2)
    quick = Extent(networks=7, batch_size=2, spaces=("nb1shot1_s1",))
    spearman: ClassVar[Figures] = dict.fromkeys(("synflow", "synflow(norm=train)"), NasiTable3.spearman["synflow"])
    kendall: ClassVar[Figures] = dict.fromkeys(("synflow", "synflow(norm=train)"), NasiTable3.kendall["synflow"])
