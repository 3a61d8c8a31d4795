"""Thesis, Table 6.1: training-free searches of NAS-Bench-201, and a search by dextr.

NASWOT takes the best of N random networks (here without repeats). TE-NAS prunes by kappa and linear regions, here on
networks drawn from the remaining choices, not on the supernet (`epochzero.study.methods.te_nas`); its kappa is that of
the summed logits, and "labels" uses that of the labelled loss, for pools that have no other. KNAS takes the 20 of 1,000
networks with the largest kernel, the same as `nasi_trace`, and the best of them by validation accuracy after 12 epochs.
Scores are of one CIFAR-10 batch and one seed of weights. NASI works inside a supernet: `python -m epochzero_papers
nasi-record` measures it.

Shu. Understanding and improving neural architecture search (thesis, chapter 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.table_searches import FEEDBACK, Printed, TableSearch, TableSearches

TE_NAS = TableSearch("TE-NAS", "te_nas", "te_rank(ntk_cond(of=sum),linear_regions)", 257)
TE_NAS_LABELS = TableSearch("TE-NAS, labels", "te_nas", "te_rank(ntk_cond,linear_regions)", TE_NAS.evaluations)
KNAS = TableSearch("KNAS", "top_k", FEEDBACK, 20, {"proxy": "nasi_trace"})


@experiment
class ThesisTable61(TableSearches):
    """Training-free searches."""

    name = "thesis-table6.1"
    source = "Shu, thesis, Table 6.1"
    searches = (
        *(TableSearch(f"NASWOT (N={n})", "random", "naswot", n) for n in (10, 100, 1000)),
        TE_NAS,
        TE_NAS_LABELS,
        KNAS,
        *(TableSearch(f"random, dextr (N={n})", "random", "dextr", n) for n in (10, 100, 1000)),
        TableSearch("evolution, dextr (N=1000)", "evolution", "dextr", 1000),
    )
    paper: ClassVar[Printed] = {
        "NASWOT (N=10)": ((92.44, 1.13), (68.62, 2.04), (41.31, 4.11)),
        "NASWOT (N=100)": ((92.81, 0.99), (69.48, 1.70), (43.10, 3.16)),
        "NASWOT (N=1000)": ((92.96, 0.81), (69.98, 1.22), (44.44, 2.10)),
        **dict.fromkeys((TE_NAS.label, TE_NAS_LABELS.label), ((93.90, 0.47), (71.24, 0.56), (42.38, 0.46))),
        "KNAS": ((93.05, None), (68.91, None), (34.11, None)),
        "NASI (T)": ((93.08, 0.24), (69.51, 0.59), (40.87, 0.85)),
        "NASI (4T)": ((93.55, 0.10), (71.20, 0.14), (44.84, 1.41)),
    }
    waiting: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("NASI (T)", "NASI (4T)"),
        "`python -m epochzero_papers nasi-record --data cifar10.npz --batch-size 8 --option cells=1 --option "
        "without=none --seed S --steps 200 --out S.json` for each seed, then `... nasi_grid report *.json --table "
        "nb201.csv.gz --steps 50,200 --nu adaptive --mu 1`",
    )
