"""Rank correlations of proxies on tables of networks with known accuracies.

A case is a table with the columns to compare with. Its networks are scored in one or several repeats, each with its
own weights and batch of data. All proxies of a case are scored on the same networks, so that they can be compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from epochzero.errors import DataError, UserError
from epochzero.evaluate.figures import Figures, Merits, Rules, figures_of, merits_of
from epochzero.evaluate.sample import Sample, draw, notes_between, notes_of
from epochzero.evaluate.scores import Scores, score_all
from epochzero.objectives.objective import Objective
from epochzero.progress import Progress, silent
from epochzero.stats.bootstrap import Estimate
from epochzero.store import JSON, Run, Store, manifest
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable


@dataclass(frozen=True)
class Case:
    """A table, some of its columns, and the tasks that score its networks."""

    name: str
    table: AccuracyTable
    targets: Sequence[str]
    tasks: Sequence[Task]
    """one for each repeat, with the same space and proxies, other weights, another batch"""


@dataclass(frozen=True)
class CaseOutcome:
    """The results on one table."""

    case: Case
    sample: Sample
    scores: list[Scores]
    """one for each repeat"""
    merits: Merits
    figures: Figures


@dataclass(frozen=True)
class BenchOutcome:
    """The results of a benchmark."""

    cases: list[CaseOutcome]
    notes: list[str]
    """caveats about the figures"""
    seconds: float


def run_bench(
    cases: Sequence[Case],
    objectives: Sequence[Objective],
    sample: int | None = None,
    *,
    seed: int = 0,
    rules: Rules = Rules(),
    versus: Objective | None = None,
    share: bool = False,
    store: Store,
    progress: Progress = silent,
) -> BenchOutcome:
    """Scores a random sample of each table's networks, by default all, and compares with each target.

    The seed draws the sample. `share` scores one network of each class of isomorphic ones; parameters and FLOPs are
    always counted for each network.
    """
    start = time.perf_counter()
    _check_targets(cases)
    share = share and not all(proxy.free for one in objectives for proxy in one.proxies)
    samples = [draw(case.table, case.targets, case.tasks[0], sample, seed, share) for case in cases]
    runs = [_begin(case, drawn, seed, rules, store) for case, drawn in zip(cases, samples, strict=True)]
    scores = score_all(samples, [case.tasks for case in cases], runs, store, progress)
    merits = [{one.text: [merits_of(one, repeat) for repeat in repeats] for one in objectives} for repeats in scores]
    figures = figures_of(samples, merits, None if versus is None else versus.text, rules, progress)
    for run, of in zip(runs, figures, strict=True):
        spearmans = {f"{row.proxy} {row.target}": row.quality.figures["spearman"] for row in of.rows}
        run.finish({name: kept_figure(one.estimate, "spearman", one.why) for name, one in spearmans.items()})
    outcomes = [CaseOutcome(*parts) for parts in zip(cases, samples, scores, merits, figures, strict=True)]
    notes = [note for outcome in outcomes for note in notes_of(outcome.case.name, outcome.sample)]
    notes += notes_between({outcome.case.name: outcome.sample for outcome in outcomes})
    return BenchOutcome(outcomes, notes, time.perf_counter() - start)


def kept_figure(estimate: Estimate | None, statistic: str, why: str = "") -> dict[str, JSON]:
    """A figure as a store keeps it for reports, with None for NaN and infinities."""
    given = {} if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    numbers = {name: given.get(name, math.nan) for name in ("value", "low", "high")}
    whole: dict[str, JSON] = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return whole | {"n": None if estimate is None else estimate.n, "statistic": statistic, "why": why}


def _check_targets(cases: Sequence[Case]) -> None:
    for case in cases:
        if not case.targets:
            raise UserError(f"No target column is named; the table has {', '.join(case.table.columns)}.")
        for target in case.targets:
            if target in case.table.columns:
                continue
            others = [other.name for other in cases if target in other.table.columns]
            if not others:
                case.table.column(target)  # which raises with a hint
            raise DataError(
                f"{case.name} has no column '{target}'; {' and '.join(others)} {'has' if len(others) == 1 else 'have'} "
                f"it. Give --target once for each --table, in their order. {case.name} has "
                f"{', '.join(case.table.columns)}."
            )


def _begin(case: Case, sample: Sample, seed: int, rules: Rules, store: Store) -> Run:
    """The run of this case in the store, new or resumed."""
    first = case.tasks[0]
    settings: dict[str, JSON] = {
        "space": first.space.name,
        "proxies": [proxy.text for proxy in first.proxies],
        "table": f"{case.name}-{sample.digest}",
        "targets": list(case.targets),
        "sample": len(sample.archs),
        "seed": seed,
        "unscored": rules.unscored,
        "repeats": [{"origin": str(task.origin), "batch": task.setting.batch} for task in case.tasks],
        "shared": None
        if sample.sharing is None
        else {"networks": len(sample.archs), "classes": sample.sharing.classes},
    }
    about: dict[str, JSON] = {
        "data": [task.batch.about for task in case.tasks],
        "device": first.device,
        "executor": first.executor.about(),
        "resolved": {proxy.text: dict(proxy.resolved) for proxy in first.proxies},
    }
    return store.begin_run("bench", settings, manifest(settings | about))
