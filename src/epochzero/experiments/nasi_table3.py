"""NASI, Table 3: rank correlation of training-free metrics with test accuracy in NAS-Bench-1Shot1.

Spearman's and Kendall's correlation with the test accuracy on CIFAR-10, one random mini-batch, metrics as published
with Abdelfattah et al. (2021). The paper does not say how many networks, nor the batch size; here the search's 64. A
space's accuracies are those of its cells in NAS-Bench-101, of which the table at hand may hold a part. The trace norm
is given for all networks: the paper's figures for it are "conditioned", of networks below its constraint nu alone,
which the search sets.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Appendix C.2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from epochzero.experiments.correlations import Extent, Figures
from epochzero.experiments.one_shot import OneShotCorrelations
from epochzero.registry import experiments


class NasiTable3(OneShotCorrelations):
    """Four metrics and the trace norm."""

    name = "nasi-table3"
    source = "NASI (arXiv:2109.00817), Table 3"
    full = Extent(networks=500, repeats=1)
    quick = Extent(networks=5, batch_size=8, spaces=("nb1shot1_s1",))
    spearman: ClassVar[Figures] = {
        "snip": (-0.49, -0.62, -0.79),
        "grasp": (0.41, 0.54, 0.17),
        "synflow": (-0.52, -0.45, -0.53),
        "naswot": (0.21, 0.32, 0.54),
        "nasi_trace": (None, None, None),
    }
    kendall: ClassVar[Figures] = {
        "snip": (-0.39, -0.49, -0.63),
        "grasp": (0.33, 0.42, 0.15),
        "synflow": (-0.42, -0.40, -0.47),
        "naswot": (0.16, 0.24, 0.44),
        "nasi_trace": (None, None, None),
    }
    waiting: ClassVar[Mapping[str, Figures]] = {
        "spearman": {"nasi_trace, conditioned": (0.62, 0.74, 0.76)},
        "kendall": {"nasi_trace, conditioned": (0.44, 0.53, 0.53)},
    }
    later = ("NASI conditioned is left out: its constraint is set by NASI's search, which comes with step 6.",)


experiments.register(NasiTable3.name, NasiTable3(), origin=__name__)
