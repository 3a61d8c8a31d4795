"""Thesis, Tables 7.3 and 7.13: HNAS on NAS-Bench-201 with every metric, and other searches with as many evaluations.

Twenty evaluations each, feedback the validation accuracy on CIFAR-10 after 12 epochs. HNAS evaluates 2,000 more random
networks in each step, as the published code does (here without repeats), and tunes the thesis' objective; rows "code"
tune the published code's. For the baselines the paper prints what others reported for 12,000 seconds; HNAS' twenty
evaluations cost some 3,000, so those figures are compared with 80 evaluations. TPE takes the place of BOHB. REA has a
population of 10 and tournaments of 3.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from typing import ClassVar

from epochzero_papers.harness.base import experiment
from epochzero_papers.harness.table_searches import FEEDBACK, Printed, TableSearch, TableSearches
from epochzero_papers.thesis.table6_1 import KNAS, TE_NAS, TE_NAS_LABELS, ThesisTable61

EVALUATIONS, LONGER = 20, 80
EVERY = 15_625
"""networks of NAS-Bench-201"""
SAMPLES = 64
"""of the batch of the pool's scores"""
METRICS = ("grad", "snip", "grasp", "trace", "knas", "fisher", "synflow", "naswot")
REA = {"population": 10, "tournament": 3, "batch": 1}


def hnas(metric: str, form: str = "thesis", evaluations: int = EVALUATIONS) -> TableSearch:
    label = f"HNAS ({metric})" if form == "thesis" else f"HNAS ({metric}), {form}"
    options = {"metric": metric, "form": form, "samples": SAMPLES, "networks": EVERY, "opens": 2000}
    return TableSearch(label, "hnas", FEEDBACK, evaluations, options)


def baselines(evaluations: int) -> list[TableSearch]:
    """Returns searches that train every network that they evaluate."""
    beside = "" if evaluations == EVALUATIONS else f", {evaluations} evaluations"
    ways = {
        "REA": ("evolution", REA),
        "random": ("random", {"batch": 1}),
        "REINFORCE": ("reinforce", {}),
        "TPE": ("tpe", {}),
        "local search": ("local_search", {"batch": 1}),
    }
    return [
        TableSearch(f"{label}{beside}", method, FEEDBACK, evaluations, options)
        for label, (method, options) in ways.items()
    ]


@experiment
class ThesisTable73(TableSearches):
    """HNAS by metric."""

    name = "thesis-table7.3"
    source = "Shu, thesis, Tables 7.3 and 7.13"
    searches = (
        *map(hnas, METRICS),
        *(hnas(metric, "code") for metric in METRICS),
        *baselines(EVALUATIONS),
        *baselines(LONGER),
        TE_NAS,
        TE_NAS_LABELS,
        KNAS,
    )
    paper: ClassVar[Printed] = {
        "HNAS (grad)": ((94.04, 0.21), (71.75, 1.04), (45.91, 0.88)),
        "HNAS (snip)": ((93.94, 0.02), (71.49, 0.11), (46.07, 0.14)),
        "HNAS (grasp)": ((94.13, 0.13), (72.59, 0.82), (46.24, 0.38)),
        "HNAS (trace)": ((94.07, 0.10), (72.30, 0.70), (45.93, 0.37)),
        "HNAS (knas)": ((94.19, 0.06), (72.94, 0.52), (46.31, 0.38)),
        "HNAS (fisher)": ((93.28, 0.73), (69.42, 1.36), (42.85, 2.09)),
        "HNAS (synflow)": ((94.13, 0.00), (72.50, 0.00), (45.47, 0.00)),
        "HNAS (naswot)": ((92.10, 0.62), (66.81, 0.32), (39.26, 0.72)),
        "REA, 80 evaluations": ((93.92, 0.30), (71.84, 0.99), (45.15, 0.89)),
        "random, 80 evaluations": ((93.70, 0.36), (71.04, 1.07), (44.57, 1.25)),
        "REINFORCE, 80 evaluations": ((93.85, 0.37), (71.71, 1.09), (45.24, 1.18)),
        "TPE, 80 evaluations": ((93.61, 0.52), (70.85, 1.28), (44.42, 1.49)),
        **{spec.label: ThesisTable61.paper[spec.label] for spec in (TE_NAS, TE_NAS_LABELS, KNAS)},
    }
