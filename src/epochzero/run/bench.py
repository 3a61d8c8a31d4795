"""How well proxies order the networks of a table whose accuracy is known."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochzero.benchmarks import AccuracyTable
from epochzero.combine.objective import Objective
from epochzero.errors import DegenerateError, UserError
from epochzero.run.executors.base import population
from epochzero.run.task import Task
from epochzero.stats import Correlation, ProxyQuality, Unscored, paired_quality, proxy_quality
from epochzero.store import JSON, Store, manifest
from epochzero.types import Score

CHUNK = 16
"""networks for each worker that are scored and stored at a time"""


@dataclass(frozen=True)
class BenchRow:
    """One proxy against one column of the table."""

    proxy: str
    target: str
    quality: ProxyQuality


@dataclass(frozen=True)
class BenchPair:
    """By how much one proxy's Spearman exceeds that of another on the same networks."""

    proxy: str
    versus: str
    target: str
    difference: Correlation | None
    why: str = ""
    """why there is no difference; empty where there is one"""


@dataclass(frozen=True)
class BenchOutcome:
    """What a benchmark found."""

    rows: list[BenchRow]
    pairs: list[BenchPair]
    """every other proxy against the one that was named to compare with"""
    archs: list[str]
    scores: dict[str, list[Score]]
    """by proxy, in the order of `archs`"""
    seconds: float


def run_bench(
    task: Task,
    table: AccuracyTable,
    targets: Sequence[str],
    sample: int | None = None,
    *,
    seed: int = 0,
    unscored: Unscored = "drop",
    objectives: Sequence[Objective] | None = None,
    versus: Objective | None = None,
    store: Store,
    progress: Callable[[int, int], None] | None = None,
) -> BenchOutcome:
    """Score a random sample of the table's networks, all of it by default, and correlate with each target."""
    start = time.perf_counter()
    if not targets:
        raise UserError(f"No target column is named; the table has {', '.join(table.columns)}.")
    space = task.space
    table = table.keyed_by(lambda text: space.text(space.parse(text)))
    truths = {target: table.column(target) for target in targets}
    chosen = table.sample(len(table) if sample is None else sample, seed)
    archs = [table.archs[i] for i in chosen]
    settings: dict[str, JSON] = {
        "space": space.name,
        "proxies": [proxy.text for proxy in task.proxies],
        "table": f"{Path(table.source).name}-{_digest(archs, [truths[t][chosen] for t in targets])}",
        "targets": list(targets),
        "sample": len(chosen),
        "seed": seed,
        "unscored": unscored,
        "batch": task.batch.id,
        "origin": str(task.origin),
    }
    about: dict[str, JSON] = {
        "data": task.batch.about,
        "device": task.device,
        "executor": task.executor.about(),
        "resolved": {proxy.text: dict(proxy.resolved) for proxy in task.proxies},
    }
    run = store.begin_run("bench", settings, manifest(settings | about))
    scores: dict[str, list[Score]] = {proxy.text: [] for proxy in task.proxies}
    if progress is not None:
        progress(0, len(archs))
    size = max(CHUNK, population(task.device)) * task.executor.workers
    for first in range(0, len(archs), size):
        found, _ = task.evaluate([space.parse(text) for text in archs[first : first + size]], store, run, first)
        for by_proxy in found:
            for name, score in by_proxy.items():
                scores[name].append(score)
        if progress is not None:
            progress(min(first + size, len(archs)), len(archs))
    objectives = objectives or [Objective((proxy,)) for proxy in task.proxies]
    merits = {objective.text: _as_scores(objective, scores) for objective in objectives}
    known = {target: truths[target][chosen] for target in targets}
    rows = [
        BenchRow(name, target, proxy_quality(merit, known[target], True, unscored=unscored, seed=seed))
        for name, merit in merits.items()
        for target in targets
    ]
    pairs = [] if versus is None else _pairs(merits, versus.text, known, seed)
    run.finish({f"{row.proxy} {row.target}": row.quality.spearman for row in rows})
    return BenchOutcome(rows, pairs, archs, scores, time.perf_counter() - start)


def _pairs(
    merits: Mapping[str, Sequence[Score]], versus: str, known: Mapping[str, NDArray[np.float64]], seed: int
) -> list[BenchPair]:
    found = []
    for name, target in itertools.product((name for name in merits if name != versus), known):
        try:
            difference = paired_quality(merits[name], merits[versus], known[target], seed=seed)
            found.append(BenchPair(name, versus, target, difference))
        except DegenerateError as error:
            found.append(BenchPair(name, versus, target, None, str(error)))
    return found


def _as_scores(objective: Objective, scores: Mapping[str, Sequence[Score]]) -> list[Score]:
    """Each network's merit, higher is better, or why it has none."""
    networks = [dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]
    merits = objective.merits(networks)
    pairs = zip(networks, merits, strict=True)
    return [Score.degenerate(objective.why_not(one)) if merit is None else Score(merit) for one, merit in pairs]


def _digest(archs: Sequence[str], truths: Sequence[NDArray[np.float64]]) -> str:
    """A name for what is compared with, whatever the table's file is called."""
    sha = hashlib.sha256("\n".join(archs).encode())
    for truth in truths:
        sha.update(truth.tobytes())
    return sha.hexdigest()[:12]
