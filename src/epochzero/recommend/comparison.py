"""The gain of a search: its network beside baselines and random networks that were trained in the same way.

    found = compare(run, result, folder, ("logistic", "dlrm"), seeds=3)
    found["said"]                       one sentence for each comparison

The best baseline is the one with the lowest mean log loss on the test rows, so that the comparison is the hardest for
the network. The gain is the difference of mean log losses there, with an interval of Welch's t over the seeds of both.
It says how sure the difference is for other seeds of the training; the rows are the same.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import ttest_ind

from epochzero.progress import Progress, part_of
from epochzero.recommend.data.table import Part
from epochzero.recommend.sub_one_shot import RecommenderResult, SubOneShotSearch
from epochzero.recommend.training.metrics import Metrics
from epochzero.recommend.training.source import MEASURED, TrainingSource
from epochzero.recommend.training.trainer import evaluate

LEVEL = 0.95
MANY_ROWS, SEEDS = 200_000, 3
"""up to this many training rows, this many seeds by default; one above"""


def seeds_for(rows: int) -> int:
    return SEEDS if rows <= MANY_ROWS else 1


def compare(
    run: SubOneShotSearch, result: RecommenderResult, folder: Path, names: Sequence[str], seeds: int, progress: Progress
) -> dict[str, Any]:
    """Trains the best network and the baselines with several seeds, or resumes; returns a report."""
    arch = run.final.parse(result.best.arch)

    def network(source: TrainingSource) -> dict[Part, Metrics]:
        model = source.trained(arch)
        return {part: evaluate(model, run.data, part) for part in MEASURED}

    def by_hand(name: str) -> Callable[[TrainingSource], dict[Part, Metrics]]:
        return lambda source: source.baseline(name).metrics

    jobs = {"found": network} | {name: by_hand(name) for name in names}
    rows: dict[str, dict[str, Any]] = {}
    for number, (name, trained) in enumerate(jobs.items()):
        every = []
        for seed in range(run.seed, run.seed + seeds):
            source = run.source(folder, seed)
            whole = len(jobs) * seeds
            source.progress = part_of(progress, number * seeds + seed - run.seed, whole, f"comparison: {name}")
            every.append(trained(source))
        rows[name] = {
            f"{part}_{kind}": [getattr(one[part], kind) for one in every]
            for part in MEASURED
            for kind in ("log_loss", "auc")
        }
    found = rows.pop("found")
    report: dict[str, Any] = {"seeds": seeds, "found": found, "baselines": rows}
    said = []
    if rows:
        best = min(rows, key=lambda name: statistics.mean(rows[name]["test_log_loss"]))
        report |= {"best_baseline": best, "gain": gain(rows[best]["test_log_loss"], found["test_log_loss"])}
        said.append(_said(f"the best baseline, {best}", report["gain"], seeds))
    random = [one for one in result.candidates if one.random]
    if random:
        middle = statistics.median(one.test_log_loss for one in random)
        searched = min((one for one in result.candidates if not one.random), key=lambda one: one.val_log_loss)
        difference = middle - searched.test_log_loss
        report["random"] = {"networks": len(random), "median_test_log_loss": middle, "gain": difference}
        how = "lower" if difference > 0 else "not lower"
        said.append(
            f"The search's best network has a test log loss of {searched.test_log_loss:.4f}, {how} than the median of "
            f"{len(random)} random networks trained alike, {middle:.4f} (one seed)."
        )
    if result.best.random:
        said.append("The network with the lowest log loss on the validation rows is a random one.")
    if result.best.at_base:
        said.append("The best network is no better than the base rate: nothing was learnt. Look at the data.")
    return report | {"said": said}


def gain(baseline: Sequence[float], found: Sequence[float]) -> dict[str, float | None]:
    """The difference of mean log losses with its interval, which a single seed does not give."""
    value = statistics.mean(baseline) - statistics.mean(found)
    if min(len(baseline), len(found)) < 2:
        return {"value": value, "low": None, "high": None}
    if len({*baseline}) == len({*found}) == 1:
        return {"value": value, "low": value, "high": value}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # trees are the same for every seed
        interval = ttest_ind(baseline, found, equal_var=False).confidence_interval(LEVEL)
    low, high = (float(end) if math.isfinite(end) else None for end in (interval.low, interval.high))
    return {"value": value, "low": low, "high": high}


def _said(other: str, gained: dict[str, float | None], seeds: int) -> str:
    value, low, high = (gained[key] for key in ("value", "low", "high"))
    assert value is not None
    if low is None or high is None:
        than = "lower" if value > 0 else "not lower"
        return (
            f"The network's test log loss is {than} than that of {other}, by {value:+.4f} (one seed, so no interval)."
        )
    told = f"{value:+.4f} [{low:+.4f}, {high:+.4f}] over {seeds} seeds each"
    if low > 0:
        return f"The network gained on {other}: its test log loss is lower by {told}."
    if high < 0:
        return f"The network did not gain on {other}: its test log loss is higher, {told}."
    return f"The network did not gain significantly on {other}: {told}."
