"""Thesis, Figure 7.5: how well the tuned bound orders the networks of NAS-Bench-201 during HNAS.

After each step the bound is taken with the mu and nu that selected the best network so far, by its validation accuracy
after 12 epochs. Spearman's correlation with the test accuracy on CIFAR-10, over all networks that have both, is
positive where the bound points the right way. Mean over searches, with the trace metric and with KNAS', with the
thesis' objective and that of the published code. No figure is printed.

A second figure, over a grid of mu and nu: do the pairs whose bound orders the networks better also select a network of
better validation accuracy (Spearman)? The first figure can rise only if they do.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
from scipy.stats import spearmanr

from epochzero.engine import parse
from epochzero.registry import made_with
from epochzero.study.methods.base import Floats, Pool
from epochzero.study.methods.hnas import HNAS
from epochzero_papers.harness.base import Measurement, Row, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.table_searches import (
    FEEDBACK,
    ON_NB201,
    SearchTables,
    TableSearch,
    TableSearches,
    Trials,
    found_in,
    left_out,
)
from epochzero_papers.thesis.table7_3 import EVALUATIONS, hnas

AGREEMENT = "correlation against what is selected"
TRUTH, TOLD = ON_NB201.accuracies["C10"], FEEDBACK.partition(":")[2]
"""columns of the table: the accuracies to order, and those that the search receives"""
C_RANGE = (-9.0, 3.0)
"""from a range where kappa/M decides to one where the other term does"""


@experiment
class ThesisFigure75(TableSearches):
    """Correlation by step."""

    name = "thesis-figure7.5"
    source = "Shu, thesis, Figure 7.5"
    full = Trials(networks=10)
    quick = Trials(networks=3)
    searches = tuple(hnas(metric, form) for metric in ("trace", "knas") for form in ("thesis", "code"))

    def measure(self, work: Work) -> Measurement:
        tables, curves_of = self.run_all(work, self.searches, correlations)
        held = [spec for spec in self.searches if spec.label in curves_of]
        rows = [Row("nb201", spec.label, "grid", AGREEMENT, estimate([agreement(tables, spec)]), 0) for spec in held]
        for label, curves in curves_of.items():
            for step, values in enumerate(zip(*curves, strict=True), start=1):
                figure = estimate(values)
                rows.append(Row("nb201", label, f"step {step}", "spearman", figure, 0))
        ends = {label: [curve[-1] for curve in curves] for label, curves in curves_of.items()}
        return found_in(tables, rows, ends, left_out(tables, self.searches))


def correlations(tables: SearchTables, spec: TableSearch, seed: int) -> list[float]:
    """Returns the correlation after each step of one search, with the bound that selected the best network so far."""
    search = _search(tables, spec, seed)
    truth = _accuracies(tables, search, TRUTH)
    best, tuned, curve = -np.inf, search.probes[0], []
    for _ in range(EVALUATIONS):
        (arch,) = search.ask(1)
        score = tables.accuracies.value(tables.pool.space.text(arch), TOLD)
        search.tell([arch], [score.value if score.ok else None])
        if score.ok and score.value > best:
            best, tuned = score.value, search.queries[-1]
        curve.append(_correlation(search.bound(tuned["u"], tuned["c"]), truth))
    return curve


def agreement(tables: SearchTables, spec: TableSearch) -> float:
    """Returns, over a grid of u and c, the correlation of the bound's quality with its winner's validation accuracy."""
    search = _search(tables, spec, 0)
    truth, told = (_accuracies(tables, search, column) for column in (TRUTH, TOLD))
    grid = itertools.product(np.linspace(0, 1, 11), np.linspace(*C_RANGE, 13))
    bounds = (search.bound(u, c) for u, c in grid)
    found = np.array([(_correlation(bound, truth), told[np.nanargmin(bound)]) for bound in bounds])  # [143, 2]
    return float(spearmanr(found[:, 0], found[:, 1], nan_policy="omit").statistic)


def _correlation(bound: Floats, truth: Floats) -> float:
    both = np.isfinite(bound) & np.isfinite(truth)
    return float(spearmanr(-bound[both], truth[both]).statistic)


def _accuracies(tables: SearchTables, search: HNAS, column: str) -> Floats:
    """Returns a column for the networks of the search's pool, nan if unknown."""
    found = (tables.accuracies.value(tables.pool.space.text(arch), column) for arch in search.archs)
    return np.array([score.value if score.ok else np.nan for score in found])


def _search(tables: SearchTables, spec: TableSearch, seed: int) -> HNAS:
    """Returns the search on the whole pool, in a random order."""
    archs = list(tables.pool.archs)
    Random(seed).shuffle(archs)
    proxies = [parse(text) for text in spec.needs]
    columns = {
        p.text: [tables.pool.value(tables.pool.space.text(arch), p.text).value for arch in archs] for p in proxies
    }
    pool = Pool(archs, {name: np.array(column) for name, column in columns.items()}, {})
    return made_with(spec.options, HNAS, tables.pool.space, seed, pool)
