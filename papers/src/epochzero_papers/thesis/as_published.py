"""Thesis, Tables 7.5 and 7.12 with kappa, the trace and NASWOT as the published code measures them.

    kappa, trace   of the kernel from hooks on layers (`ntk_cond(of=layers)`)
    naswot         products of the ReLUs' inputs, without their signs (`naswot(of=inputs)`)
    knas           the root of eq. D.11, with the gradients of the labels' logits; the published code has no KNAS

Otherwise as `thesis-table7.5`, which holds Table 7.1's figures of NAS-Bench-201, and the CIFAR-10 rows of
`thesis-table7.12`. No stored scores have these proxies; a network takes some 4 s, so there are fewer networks.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from typing import ClassVar

from epochzero.study.methods.hnas import METRICS as PROXIES
from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.correlations import NB201_C10, Extent, Figures
from epochzero_papers.thesis.guarantees import OTHER_METRICS
from epochzero_papers.thesis.table7_5 import ThesisTable75
from epochzero_papers.thesis.table7_12 import ThesisTable712

KAPPA = "ntk_cond(of=layers)"
AS_PUBLISHED = PROXIES | {
    "trace": "ntk_trace(of=layers)",
    "knas": PROXIES["knas_label"],
    "naswot": PROXIES["naswot_raw"],
}


@experiment
class ThesisTable75AsPublished(ThesisTable75):
    """Four scenarios with the published code's kernel."""

    name = "thesis-table7.5-as-published"
    source = "Shu, thesis, Table 7.5"
    full = Extent(networks=60, repeats=3)
    proxies, kappa = AS_PUBLISHED, KAPPA


@experiment
class ThesisTable712AsPublished(ThesisTable712):
    """Four other metrics with the published code's kernel, on CIFAR-10."""

    name = "thesis-table7.12-as-published"
    source = "Shu, thesis, Table 7.12"
    full = Extent(networks=60, repeats=3)
    targets = (NB201_C10,)
    metrics = OTHER_METRICS
    proxies, kappa = AS_PUBLISHED, KAPPA
    spearman: ClassVar[Figures] = {name: row[:1] for name, row in ThesisTable712.spearman.items()}
    kendall: ClassVar[Figures] = {name: row[:1] for name, row in ThesisTable712.kendall.items()}
