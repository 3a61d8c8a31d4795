"""Thesis, Figure 7.3: regret of the best network so far on NAS-Bench-201, by the number of evaluations.

Regret is the best test accuracy on CIFAR-10 of the whole table minus that of the best network so far by validation
accuracy after 12 epochs. HNAS with the trace metric against searches that train every network, and against the plain
metric: 1,000 networks evaluated in its order. The axis of the thesis' figure is seconds, and no figure is printed.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from dataclasses import dataclass

from epochzero.study.result import Result
from epochzero_papers.harness.base import Measurement, Row, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.table_searches import (
    FEEDBACK,
    SearchTables,
    TableSearch,
    TableSearches,
    Trials,
    found_in,
    left_out,
)
from epochzero_papers.thesis.table7_3 import baselines, hnas

STATISTIC = "regret %"
STEPS = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100)


@dataclass(frozen=True)
class Length(Trials):
    """The length of the curves."""

    evaluations: int = 100


@experiment
class ThesisFigure73(TableSearches):
    """Regret curves."""

    name = "thesis-figure7.3"
    source = "Shu, thesis, Figure 7.3"
    full = Length(networks=10)
    quick = Length(networks=3, evaluations=20)

    def curves(self, evaluations: int) -> list[TableSearch]:
        """Returns every search with this number of evaluations."""
        plain = {"proxy": "ntk_trace", "batch": 1}
        searched = [hnas("trace", evaluations=evaluations), hnas("knas", evaluations=evaluations)]
        return [
            *searched,
            *(one._replace(label=one.label.partition(",")[0]) for one in baselines(evaluations)),
            TableSearch("trace metric", "top_k", FEEDBACK, evaluations, plain),
            TableSearch("knas metric", "top_k", FEEDBACK, evaluations, plain | {"proxy": "nasi_trace"}),
        ]

    def measure(self, work: Work) -> Measurement:
        searches = self.curves(work.settings.evaluations)
        tables, curves_of = self.run_all(work, searches, regrets)
        rows = []
        for label, curves in curves_of.items():
            for step in (step for step in STEPS if step <= work.settings.evaluations):
                figure = estimate([curve[min(step, len(curve)) - 1] for curve in curves])
                rows.append(Row("nb201", label, f"{step} evaluations", STATISTIC, figure, 0))
        values = {label: [curve[-1] for curve in curves] for label, curves in curves_of.items()}
        return found_in(tables, rows, values, left_out(tables, searches))


def regrets(tables: SearchTables, spec: TableSearch, seed: int) -> list[float]:
    """Returns the regret after each evaluation."""
    curve: list[float] = []
    best = max(filter(None, (tables.accuracy(arch, "C10") for arch in tables.accuracies.table.archs)))

    def note(outcome: Result) -> None:
        if outcome.best is not None and outcome.evaluated > len(curve):
            accuracy = tables.accuracy(outcome.best.text, "C10")
            curve.append(best - (accuracy if accuracy is not None else 0.0))

    tables.search(spec, seed, note)
    return curve
