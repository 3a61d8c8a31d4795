"""Dextr, Table 6: rank correlation of proxies with test accuracy on NATS-Bench's size space.

As Table 1, but for networks that differ in their numbers of channels, which Dextr and MeCo rank the wrong way round.
NTK is TE-NAS's condition number, `ntk_cond`, for which lower is better.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh. Appendix A.5
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import Correlations, Extent, Figures, Target
from epochzero_papers.harness.files import CIFAR10, CIFAR100, IMAGENET16, NATS_SSS

TARGETS = (
    Target("SSS-C10", "nats_sss", NATS_SSS, "cifar10_test", (CIFAR10,)),
    Target("SSS-C100", "nats_sss", NATS_SSS, "cifar100_test", (CIFAR100, CIFAR10)),
    Target("SSS-IN16", "nats_sss", NATS_SSS, "imagenet16_test", (IMAGENET16, CIFAR10)),
)


@experiment
class DextrTable6(Correlations):
    """Eleven proxies."""

    name = "dextr-table6"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 6"
    quick = Extent(networks=16, batch_size=16)
    targets = TARGETS
    spearman: ClassVar[Figures] = {
        "params": (0.72, 0.73, 0.84),
        "fisher": (0.44, 0.55, 0.47),
        "snip": (0.59, 0.62, 0.76),
        "grasp": (-0.13, 0.01, 0.42),
        "synflow": (0.81, 0.80, 0.57),
        "grad_norm": (0.51, 0.49, 0.67),
        "ntk_cond": (0.34, 0.29, 0.28),
        "zen": (0.69, 0.71, 0.87),
        "zico": (0.73, 0.75, 0.88),
        "meco": (-0.79, -0.87, -0.86),
        "dextr": (-0.63, -0.60, -0.67),
    }
