"""The thesis' Table 7.1 from stored scores: how well its bounds order networks whose accuracies are known.

    python benchmarks/guarantees.py docs/data/nb201_1000_cifar10.csv.gz --table nb201.csv.gz
    python benchmarks/guarantees.py docs/data/nb101_1000_cifar10.csv.gz docs/data/nb101_200_kernels_tf32.csv.gz \
        --table nb101_15k.csv.gz --space nb101 --column test_acc_108ep

Spearman with 95 % intervals, of all networks with a positive M and a finite kappa: 1/M and kappa/M of all of them, and
of the half that mu and nu have not seen the whole bound (`epochzero_papers.thesis.guarantees`) and kappa/M again.
Halves
are drawn by --seed, for files may be sorted. The thesis' figures stand in brackets.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from correlations import Scores, Truths, read_scores
from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.stats import Estimate, spearman
from epochzero.stats.text import short
from epochzero.study.methods.hnas import KAPPA
from epochzero.study.methods.hnas import METRICS as PROXIES
from epochzero.tables import AccuracyTable
from epochzero.types import Score
from epochzero_papers.thesis.guarantees import (
    METRICS,
    Floats,
    m_and_kappa,
    merits_of_the_rest,
    non_realizable,
    realizable,
    tuned,
    with_kappa,
)
from epochzero_papers.thesis.table7_1 import ThesisTable71
from epochzero_papers.thesis.table7_5 import ThesisTable75

PRINTED = {"nb201": (ThesisTable75(), "NB201-C10"), "nb101": (ThesisTable71(), "NB101")}
"""by space, the recipe that holds the thesis' figures, and their column"""
ROWS = {"1/M": realizable, "kappa/M": with_kappa, "non-realizable, held out": non_realizable, "kappa/M, held out": None}
Cells = dict[str, Estimate]
"""by row of the table"""


def scored(scores: Scores) -> list[str]:
    """The networks that all files together score by every metric and by kappa."""
    wanted = [*(PROXIES[metric] for metric in METRICS), KAPPA]
    if lacking := [proxy for proxy in wanted if proxy not in scores]:
        raise DataError(f"There are no scores of {', '.join(lacking)}; the files have {', '.join(scores)}.")
    found = [arch for arch in scores[KAPPA] if all(arch in scores[proxy] for proxy in wanted)]
    if not found:
        raise DataError("No network is scored by all metrics and by kappa: give files of the same networks.")
    return found


def of_metric(metric: str, each: Sequence[Mapping[str, Score]], truth: Floats, resamples: int) -> Cells:
    """The column of one metric."""
    m, kappa = m_and_kappa(metric, each, each)  # type: ignore[arg-type]
    whole = (m > 0) & np.isfinite(m) & np.isfinite(kappa)
    rest = merits_of_the_rest(tuned(m, kappa, truth), m, kappa)
    unseen = np.array([score.ok for score in rest])

    def correlation(merit: Floats, which: NDArray[np.bool_]) -> Estimate:
        return spearman(merit[which], truth[which], resamples=resamples)

    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = -1 / m, -kappa / m
    values = np.array([score.value for score in rest])
    found = [*(correlation(bound, whole) for bound in bounds), correlation(values, unseen)]
    return dict(zip(ROWS, [*found, correlation(bounds[1], unseen)], strict=True))


def markdown(space: str, found: Mapping[str, Cells]) -> str:
    """A line for each bound, a column for each metric."""
    recipe, label = PRINTED[space]
    printed = {
        figure.x: figure.value for figure in recipe.quoted if (figure.y, figure.statistic) == (label, "spearman")
    }
    lines = [f"| {space} | n | {' | '.join(found)} |", f"|---|---|{'---|' * len(found)}"]
    for row, name in ROWS.items():
        cells = [row, "/".join(dict.fromkeys(str(column[row].n) for column in found.values()))]
        for metric, column in found.items():
            one, paper = column[row], printed.get(name(metric)) if name else None
            thesis = "" if paper is None else f" ({short(paper, 2 if round(paper, 2) == paper else 3)})"
            cells.append(f"{short(one.value)} [{short(one.low)}, {short(one.high)}]{thesis}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, nargs="+", help="as for benchmarks/correlations.py")
    parser.add_argument("--table", type=Path, required=True, help="accuracies: .csv, .csv.gz or .parquet")
    parser.add_argument("--column", default="cifar10_test")
    parser.add_argument("--space", choices=list(PRINTED), default="nb201")
    parser.add_argument("--seed", type=int, default=0, help="of the halves")
    parser.add_argument("--resamples", type=int, default=1000)
    asked = parser.parse_args(arguments)
    scores = read_scores(asked.scores)
    archs = scored(scores)
    Random(asked.seed).shuffle(archs)
    truth = np.array(Truths(AccuracyTable.read(asked.table), spaces[asked.space], archs).of(archs, asked.column))
    each = [{proxy: of_each[arch] for proxy, of_each in scores.items() if arch in of_each} for arch in archs]
    print(markdown(asked.space, {metric: of_metric(metric, each, truth, asked.resamples) for metric in METRICS}))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
