"""Thesis, Figure 7.5: how well the tuned bound orders the networks of NAS-Bench-201 as HNAS goes on.

After each step the bound is taken with the mu and nu that selected the best network so far, by its validation accuracy
after 12 epochs. Spearman's correlation with the test accuracy on CIFAR-10, over all networks that have both, is
positive where the bound points the right way. Mean over searches, with the trace metric and with KNAS'. No figure is
printed.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from epochzero.engine import parse
from epochzero.experiments.base import Found, Row, Work
from epochzero.experiments.searching import FEEDBACK, Arena, Contest, Searches, Trials, estimate, found_in, left_out
from epochzero.experiments.thesis_table7_3 import EVALUATIONS, hnas
from epochzero.registry import experiments
from epochzero.searches.base import Pool
from epochzero.searches.hnas import HNAS


class ThesisFigure75(Searches):
    """Correlation by step."""

    name = "thesis-figure7.5"
    source = "Shu, thesis, Figure 7.5"
    full = Trials(networks=10)
    quick = Trials(networks=3)
    contests = (hnas("trace"), hnas("knas"))

    def measure(self, work: Work) -> Found:
        arena, found = self.contested(work, self.contests, correlations)
        rows = []
        for label, curves in found.items():
            for step, values in enumerate(zip(*curves, strict=True), start=1):
                figure = estimate(values, seed=work.seed)
                rows.append(Row("nb201", label, f"step {step}", "spearman", figure, 0))
        ends = {label: [curve[-1] for curve in curves] for label, curves in found.items()}
        return found_in(arena, rows, ends, left_out(arena, self.contests))


def correlations(arena: Arena, contest: Contest, seed: int) -> list[float]:
    """After each step of one search, that of the bound as it was when the best network so far was selected."""
    search = _search(arena, contest, seed)
    truth = np.array([arena.accuracy(arena.pool.space.text(arch), "C10") or np.nan for arch in search.archs])
    best, tuned, curve = -np.inf, search.probes[0], []
    for _ in range(EVALUATIONS):
        (arch,) = search.ask(1)
        score = arena.accuracies.value(arena.pool.space.text(arch), FEEDBACK.partition(":")[2])
        search.tell([arch], [score.value if score.ok else None])
        if score.ok and score.value > best:
            best, tuned = score.value, search.queries[-1]
        bound = search.bound(tuned["u"], tuned["c"])
        both = np.isfinite(bound) & np.isfinite(truth)
        curve.append(float(spearmanr(-bound[both], truth[both]).statistic))
    return curve


def _search(arena: Arena, contest: Contest, seed: int) -> HNAS:
    """The search itself, on the whole pool in an order of the seed's."""
    archs = list(arena.pool.archs)
    Random(seed).shuffle(archs)
    proxies = [parse(text) for text in contest.needs]
    columns = {p.text: [arena.pool.value(arena.pool.space.text(arch), p.text).value for arch in archs] for p in proxies}
    pool = Pool(archs, {name: np.array(column) for name, column in columns.items()}, {})
    options: dict[str, Any] = dict(contest.options)
    return HNAS(arena.pool.space, seed, pool, **options)


experiments.register(ThesisFigure75.name, ThesisFigure75(), origin=__name__)
