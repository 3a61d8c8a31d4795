r"""Dextr's constant: how its correlation depends on the unit of kappa, from stored scores of its two terms.

    dextr = fmi * bent / (fmi + bent),     bent = log(1 + c kappa),     curvature = log(1 + kappa)

    python benchmarks/dextr_scale.py docs/data/nb201_1000_cifar10.csv.gz docs/data/nb201_1000_cifar10_seed1.csv.gz \
        docs/data/nb201_1000_cifar10_seed2.csv.gz --table nb201.csv.gz --targets cifar10_test

Each argument is one repeat, with other weights and circles; files joined by commas are read together, such as stored
scores of `fmi` and those that `python -m epochzero.bare sweep` writes of another `--curvature`, such as
"curvature(points=8,alone=true)".
Figures are Spearman's, as means over the repeats, and the differences are dextr's minus those of `fmi` alone, with 95 %
intervals over networks and repeats. A constant is chosen on one half of the networks, by its mean difference over the
targets, and judged on the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from correlations import Truths, read_scores
from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.stats import Estimate, paired_difference, spearman
from epochzero.stats.text import short
from epochzero.tables import AccuracyTable

Floats = NDArray[np.float64]
CONSTANTS = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0, 1024.0)


def terms(repeats: Sequence[Sequence[Path]], curvature: str) -> tuple[list[str], Floats, Floats]:
    """The networks that have both terms in every repeat, fmi [R, N] and kappa [R, N]."""
    found = [read_scores(files) for files in repeats]
    for scores in found:
        if lacking := {"fmi", curvature} - scores.keys():
            raise DataError(f"A repeat has no scores of {' or '.join(sorted(lacking))}; it has {', '.join(scores)}.")
    archs = sorted(
        set.intersection(
            *({a for a, s in scores[name].items() if s.ok} for scores in found for name in ("fmi", curvature))
        )
    )
    fmi, bent = (np.array([[scores[name][a].value for a in archs] for scores in found]) for name in ("fmi", curvature))
    return archs, fmi, np.expm1(bent)


def dextr(fmi: Floats, kappa: Floats, constant: float) -> Floats:
    bent = np.log1p(constant * kappa)
    found: Floats = fmi * bent / (fmi + bent)
    return found


def chosen(fmi: Floats, kappa: Floats, truths: Sequence[Floats]) -> float:
    """The constant with the largest mean difference."""

    def mean(constant: float) -> float:
        gaps = (paired_difference(dextr(fmi, kappa, constant), fmi, y, resamples=2).value for y in truths)
        return float(np.mean(list(gaps)))

    return max(CONSTANTS, key=mean)


def written(found: Estimate) -> str:
    return f"{short(found.value)} [{short(found.low)}, {short(found.high)}]"


def line(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", nargs="+", help="one repeat each; files joined by commas")
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--targets", default="cifar10_test", help="columns of the table")
    parser.add_argument("--curvature", default="curvature")
    parser.add_argument("--constants", default="1,4,8,24,128", help="shown")
    asked = parser.parse_args(arguments)
    repeats = [[Path(name) for name in names.split(",")] for names in asked.scores]
    archs, fmi, kappa = terms(repeats, asked.curvature)
    columns = asked.targets.split(",")
    known = Truths(AccuracyTable.read(asked.table), spaces[asked.space], archs)
    truths = [np.array(known.of(archs, column)) for column in columns]
    print(f"{len(archs)} networks, {len(repeats)} repeats; {asked.curvature}, median kappa {np.median(kappa):.3g}.\n")
    line(["", *columns])
    line(["---"] * (len(columns) + 1))
    line(["fmi", *(written(spearman(fmi, y)) for y in truths)])
    line([asked.curvature, *(written(spearman(kappa, y)) for y in truths)])
    for constant in map(float, asked.constants.split(",")):
        gaps = [paired_difference(dextr(fmi, kappa, constant), fmi, y) for y in truths]
        line([f"dextr with kappa x {constant:g}, minus fmi", *map(written, gaps)])
    order = list(range(len(archs)))
    Random(0).shuffle(order)
    half = len(order) // 2
    for one, other in ((order[:half], order[half:]), (order[half:], order[:half])):
        constant = chosen(fmi[:, one], kappa[:, one], [y[one] for y in truths])
        held_out = [dextr(fmi[:, other], kappa[:, other], c) for c in (constant, 1.0)]
        rest = [y[other] for y in truths]
        gaps = [paired_difference(held_out[0], fmi[:, other], y) for y in rest]
        line([f"chosen on one half: {constant:g}; on the other, minus fmi", *map(written, gaps)])
        gaps = [paired_difference(held_out[0], held_out[1], y) for y in rest]
        line(["the same minus dextr with kappa x 1", *map(written, gaps)])


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
