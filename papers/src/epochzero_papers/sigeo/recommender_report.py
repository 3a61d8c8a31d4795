"""Tables in Markdown from the pieces of `recommender-sweep`.

python -m epochzero_papers recommender-report --folder DIR [--networks 80]
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from epochzero.data.batch import digest
from epochzero.recommend.presets import PRESETS
from epochzero.stats import Estimate, kendall, paired_difference, spearman
from epochzero_papers.harness.options import option
from epochzero_papers.sigeo.clicks import LEVELS
from epochzero_papers.sigeo.recommender_sweep import (
    BASELINES,
    COLUMNS,
    NETWORKS,
    SEEDS,
    TERMS,
    WHOLE,
    ZICO,
    Study,
    label_of,
)

TOP = PRESETS["reduced"].top
"""networks that a search trains and chooses from"""
Repeats = list[list[float]]
"""scores of the networks, by the supernet's seed"""


class Figures(NamedTuple):
    """Means over networks or seeds."""

    losses: list[float]
    areas: list[float]

    @property
    def text(self) -> str:
        return " | ".join(
            f"{statistics.mean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")
            for values in (self.losses, self.areas)
        )


def report(study: Study) -> str:
    """Returns correlations, terms, searches, and selected networks compared with random ones and baselines."""
    folder, space, archs = study.folder, study.place.space, study.archs
    pieces = [_trained(folder, space.text(arch)) for arch in archs]
    unscored = _unscored(folder)
    known = [i for i, one in enumerate(pieces) if one is not None and i not in unscored]
    trained = [one for i, one in enumerate(pieces) if one is not None and i not in unscored]
    truth = [-statistics.mean(_figures(one, "test").losses) for one in trained]
    apart = statistics.mean(statistics.stdev(_figures(one, "test").losses) for one in trained)
    lines = [
        f"{len(known)} networks ({len(unscored)} without some score left out), mean test log loss {-max(truth):.4f} to "
        f"{-min(truth):.4f}, deviation {statistics.stdev(truth):.4f}; between seeds of one network {apart:.4f}",
        "",
        *_agreement(trained),
        *_correlations(folder, known, truth),
    ]
    plans = [space.plan(archs[i]) for i in known]
    for name, sizes in (("parameters", [p.params for p in plans]), ("flops", [p.flops for p in plans])):
        lines.append(f"{name}: {_shown(spearman([float(size) for size in sizes], truth))}")
    return "\n".join([*lines, "", *_networks(folder, trained)])


def _unscored(folder: Path) -> set[int]:
    """Returns the networks without a value of some proxy."""
    found = [json.loads(file.read_text(encoding="utf-8"))["columns"] for file in folder.glob("scores-*.json")]
    return {i for columns in found for values in columns.values() for i, value in enumerate(values) if value is None}


def _trained(folder: Path, name: str) -> dict[str, Any] | None:
    file = folder / "trained" / f"{digest(name)[:16]}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _figures(trained: Mapping[str, Any], part: str) -> Figures:
    measures = trained["measures"][part]
    return Figures([one["log_loss"] for one in measures], [one["auc"] for one in measures])


def _agreement(trained: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the agreement between seeds, and the highest correlation that a score can reach with their means.

    If two trainings agree to r, means of n have the reliability n r / (1 + (n - 1) r), and a perfect score
    agrees with them to the square root of that (Spearman and Brown, British Journal of
    Psychology 1910).
    """
    by_seed = list(zip(*(_figures(one, "test").losses for one in trained), strict=True))
    pairs = [(a, b) for b in range(len(by_seed)) for a in range(b)]
    agreements = {pair: spearman(by_seed[pair[0]], by_seed[pair[1]]) for pair in pairs}
    each = [f"{a} and {b} {_shown(one)}" for (a, b), one in agreements.items()]
    r, n = statistics.mean(one.value for one in agreements.values()), len(by_seed)
    ceiling = math.sqrt(max(0.0, n * r / (1 + (n - 1) * r)))
    return [
        f"Agreement of the trainings (Spearman), seeds {'; '.join(each)}; {r:.3f} on average, so that no score can be "
        f"expected to agree with means of {n} to more than {ceiling:.3f}",
        "",
    ]


def _scores(folder: Path, level: float, scaled: bool, known: Sequence[int]) -> dict[str, Repeats]:
    files = [folder / f"scores-{label_of(seed, level, scaled)}.json" for seed in range(SEEDS)]
    found = [json.loads(file.read_text(encoding="utf-8"))["columns"] for file in files if file.exists()]
    return {column: [[one[column][i] for i in known] for one in found] for column in COLUMNS if found}


def _correlations(folder: Path, known: Sequence[int], truth: Sequence[float]) -> list[str]:
    lines = ["| warm-up | " + " | ".join(["sigeo: Spearman", "Kendall", "zico: Spearman", "Kendall", *TERMS]) + " |"]
    lines.append("|" + " --- |" * (5 + len(TERMS)))
    by_level: dict[tuple[float, bool], tuple[Repeats, Repeats]] = {}
    for level, scaled in LEVELS:
        columns = _scores(folder, level, scaled, known)
        if not columns:
            continue
        sigeo, zico = columns[WHOLE if level else "sigeo"], columns[ZICO]
        by_level[level, scaled] = sigeo, zico
        cells = [_shown(statistic(scores, truth)) for scores in (sigeo, zico) for statistic in (spearman, kendall)]
        cells += [_shown(spearman(columns[f"sigeo(weights={weights})"], truth)) for weights in TERMS.values()]
        name = f"{100 * level:g} %" + ("" if scaled else ", schedule cut off")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("")
    pairs = [((0.01, True), (0.0, True)), ((1.0, True), (0.0, True)), ((0.01, True), (0.01, False))]
    for one, other in pairs:
        if one in by_level and other in by_level:
            gains = [paired_difference(by_level[one][k], by_level[other][k], truth) for k in (0, 1)]
            lines.append(f"{_level(one)} - {_level(other)}: sigeo {_shown(gains[0])}, zico {_shown(gains[1])}")
    for level_, (sigeo, zico) in by_level.items():
        lines.append(f"sigeo - zico at {_level(level_)}: {_shown(paired_difference(sigeo, zico, truth))}")
    return lines


def _level(level: tuple[float, bool]) -> str:
    return f"{100 * level[0]:g} %" + ("" if level[1] else " cut off")


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _networks(folder: Path, trained: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns selected networks by search and supernet's seed, with baselines and random search."""
    heads = [
        "network",
        "test log loss",
        "test AUC",
        "seconds: warm-up, search",
        "better than",
        "and than random search",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    made = {name: _trained(folder, name) for name in BASELINES}
    lines += [f"| {name} | {_figures(one, 'test').text} | | | |" for name, one in made.items() if one is not None]
    random = _means(trained)
    middle = (statistics.median(values) for values in random)
    lines.append(f"| median of {len(trained)} random | " + " | ".join(f"{value:.4f}" for value in middle) + " | | | |")
    lines.append(f"| best of them | {min(random.losses):.4f} | {max(random.areas):.4f} | | | |")
    picked = _means([_chosen(three) for three in combinations(trained, TOP)])
    lines.append(f"| random search of {TOP} ({len(picked.losses):,} triples) | {picked.text} | | | |")
    left_out = []
    for file in sorted(folder.glob("found-*.json"), key=lambda file: file.name.split("-", 2)[2]):
        told = json.loads(file.read_text(encoding="utf-8"))
        label = file.stem.removeprefix("found-").rpartition("-")[0]
        warm = json.loads((folder / f"scores-{label}.json").read_text(encoding="utf-8"))["warm_up_seconds"]
        each = [found for text in told["archs"] if (found := _trained(folder, text)) is not None]
        if len(each) < len(told["archs"]):
            left_out.append(f"{file.stem} ({len(each)} of {len(told['archs'])})")
            continue
        figures = _figures(_chosen(each), "test")
        mean = statistics.mean(figures.losses)
        beaten = sum(loss > mean for loss in random.losses)
        share = statistics.mean(loss > mean for loss in picked.losses)
        lines.append(
            f"| {file.stem} (of {len(each)}) | {figures.text} | {warm:.1f}, {told['seconds']:.1f} | {beaten} of "
            f"{len(trained)} | {100 * share:.0f} % |"
        )
    if left_out:
        lines += ["", f"Left out, because not all networks are trained: {', '.join(left_out)}"]
    return lines


def _chosen(trained: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the choice of a search: the best on the validation rows of the first training seed."""
    return min(trained, key=lambda one: _figures(one, "val").losses[0])


def _means(trained: Sequence[Mapping[str, Any]]) -> Figures:
    """Returns the mean of each network over its trainings, on the test rows."""
    each = [_figures(one, "test") for one in trained]
    return Figures([statistics.mean(one.losses) for one in each], [statistics.mean(one.areas) for one in each])


@dataclass(frozen=True)
class Asked:
    """The pieces of a report."""

    folder: Path = option(about="the folder of the pieces")
    networks: int = option(NETWORKS)


def run(asked: Asked) -> str:
    """Returns the report."""
    return report(Study(asked.folder, networks=asked.networks))
