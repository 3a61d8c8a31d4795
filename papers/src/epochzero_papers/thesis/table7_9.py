"""Thesis, Table 7.9: the guarantees under other initialisations, on NAS-Bench-201.

The two bounds of Table 7.1, the non-realizable one tuned for each initialisation. "LeCun" is taken as PyTorch's
default: an inference of ours, since the published code has no such option and leaves the layers' own weights unless
told otherwise. Xavier and He are its normal variants.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import NB201_C10, Figures
from epochzero_papers.thesis.guarantees import Guarantees, by_metric, non_realizable, realizable


@experiment
class ThesisTable79(Guarantees):
    """Four metrics, three initialisations."""

    name = "thesis-table7.9"
    source = "Shu, thesis, Table 7.9"
    targets = tuple(
        replace(NB201_C10, label=f"NB201-C10, {label}", init=init)
        for label, init in (("LeCun", "default"), ("Xavier", "xavier"), ("He", "kaiming"))
    )
    spearman: ClassVar[Figures] = {
        **by_metric(
            realizable, [(0.637, 0.639, 0.566, 0.538), (0.608, 0.627, 0.449, 0.465), (0.609, 0.615, 0.340, 0.460)]
        ),
        **by_metric(
            non_realizable, [(0.750, 0.748, 0.686, 0.697), (0.676, 0.685, 0.615, 0.635), (0.607, 0.611, 0.505, 0.569)]
        ),
    }
    kendall: ClassVar[Figures] = {
        **by_metric(
            realizable, [(0.469, 0.472, 0.400, 0.387), (0.445, 0.463, 0.316, 0.334), (0.446, 0.454, 0.242, 0.334)]
        ),
        **by_metric(
            non_realizable, [(0.559, 0.556, 0.501, 0.512), (0.493, 0.501, 0.442, 0.460), (0.436, 0.439, 0.358, 0.407)]
        ),
    }
