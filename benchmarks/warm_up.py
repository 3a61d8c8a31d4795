r"""SiGeo and ZiCo after some steps of training: tables for docs/results.md from scores of
`papers/src/epochzero_papers/sigeo/warm_up.py`.

    python benchmarks/warm_up.py docs/data/nb201_warm_up.csv.gz --table nb201.csv.gz

Scores come from one or several stores, or from what `epochzero store export` writes of them, .csv or .csv.gz. Both
proxies see the same four batches, so ZiCo is the first term of SiGeo, and the difference of the two is the rest:

    sigeo - zico          =  l2 log FR - l3 loss          called `rest`; l2, l3 = 1, 0 before and 50, 1 after training
    zico + rest / 50      =  SiGeo with l1, l2, l3 = 1, 1, 1/50 after training

Where a store has the terms apart (`warm-up --apart`), their rows, and that of the sum of the logarithms of the ranks of
ZiCo and of minus the mean loss, are printed too. sd is the standard deviation over networks: which of two terms with
weights decides the order of their sum.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from epochzero.errors import DataError, UserError
from epochzero.proxies.sigeo import lambdas
from epochzero.stats import Estimate, kendall, paired_difference, spearman
from epochzero.stats.text import short
from epochzero.store import ScoreRow, Store
from epochzero.tables import AccuracyTable
from epochzero.types import Status
from epochzero_papers.sigeo.table3 import LEVELS, SigeoTable3
from epochzero_papers.sigeo.warm_up import PARTS, WARM, ZERO_SHOT, ZICO

TARGETS = ("cifar10_test", "cifar100_test", "imagenet16_test")
PRINTED = slice(1, 4)
"""where these stand in the paper's table"""
NAMES = {ZICO: "zico", ZERO_SHOT: "sigeo", WARM: "sigeo"} | dict(
    zip(PARTS, ("log FR", "-loss, last", "-loss"), strict=True)
)
BENT = lambdas("warm_vision")[1]
"""the weight of the Fisher-Rao norm after training"""
LIGHTER = f"zico + rest / {BENT:g}"
RANKS = "rank(zico,-loss)"
Floats = NDArray[np.float64]
Scores = dict[tuple[str, int], Floats]
"""by proxy and steps, in the order of the networks that have every score"""


def read_rows(path: Path) -> Iterator[ScoreRow]:
    """Every score of a store, or of an export of one."""
    if path.suffix == ".db":
        with Store.open(path) as store:
            yield from store.all_scores()
        return
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != ScoreRow._fields:
            raise DataError(f"{path} is not an export of a store: its columns must be {', '.join(ScoreRow._fields)}.")
        for row in rows:
            yield ScoreRow(
                space=row["space"],
                arch=row["arch"],
                proxy=row["proxy"],
                batch=row["batch"],
                origin=row["origin"],
                value=float(row["value"]) if row["value"] else None,
                status=cast(Status, row["status"]),
                why=row["why"],
                seconds=float(row["seconds"]),
            )


def gathered(rows: Iterable[ScoreRow]) -> tuple[list[str], Scores, Counter[str]]:
    """The networks with every score, their scores, and why others lack some."""
    values: dict[tuple[str, int], dict[str, float]] = {}
    lacking: dict[str, str] = {}
    for row in rows:
        name = row.proxy.partition("#")[0]  # without its recipe
        if name not in NAMES:
            continue
        of = values.setdefault((NAMES[name], steps_of(row)), {})
        if row.value is None:
            lacking[row.arch] = row.why
        else:
            of[row.arch] = row.value
    if not values:
        raise DataError(f"The files have no scores of {' or '.join(NAMES)}.")
    archs = sorted(set.intersection(*(set(of) for of in values.values())))
    found = {key: np.array([of[arch] for arch in archs]) for key, of in values.items()}
    return archs, found, Counter(lacking.values())


def steps_of(row: ScoreRow) -> int:
    """The steps of training in a batch's name: `cifar10-4f6c+78` are the batches after 78 steps."""
    _, plus, steps = row.batch.rpartition("+")
    if not plus or not steps.isdecimal():
        raise DataError(
            f"'{row.batch}' does not say after how many steps: give scores of "
            f"papers/src/epochzero_papers/sigeo/warm_up.py."
        )
    return int(steps)


def with_parts(scores: Scores) -> Scores:
    """Also the rest of SiGeo, and SiGeo with less of it."""
    found = dict(scores)
    for steps in levels(scores):
        rest = found["rest", steps] = scores["sigeo", steps] - scores["zico", steps]
        if steps:
            found[LIGHTER, steps] = scores["zico", steps] + rest / BENT
        if ("-loss", steps) in scores:
            ranked = (np.log(rankdata(scores[name, steps])) for name in ("zico", "-loss"))
            found[RANKS, steps] = np.sum(list(ranked), axis=0)
    return found


def levels(scores: Scores) -> list[int]:
    return sorted({steps for _, steps in scores})


def paper(name: str, steps: int) -> str:
    """Spearman's and Kendall's figures of Table 3."""
    percent = {SigeoTable3.full.steps(level): level for level in LEVELS}.get(steps)
    key = f"{name}, {percent} %"
    if key not in SigeoTable3.spearman:
        return ""
    tables = (SigeoTable3.spearman, SigeoTable3.kendall)
    return ", ".join("/".join(short(value, 2) for value in table[key][PRINTED] if value) for table in tables)


def correlations(scores: Scores, truths: Sequence[Floats]) -> Iterator[list[str]]:
    """A line for each proxy and level."""
    names = dict.fromkeys(name for name, _ in scores)
    for name, steps in (key for key in product(names, levels(scores)) if key in scores):
        x = scores[name, steps]
        found = [measure(x, y) for measure in (spearman, kendall) for y in truths]
        yield [name, str(steps), f"{x.std():.2f}", *map(interval, found), paper(name, steps)]


def differences(scores: Scores, truths: Sequence[Floats]) -> Iterator[list[str]]:
    """A line for each pair: later against at first, SiGeo and its lighter form against ZiCo."""
    first, *later = levels(scores)
    pairs = [((name, steps), (name, first)) for name in ("sigeo", "zico") for steps in later]
    pairs += [(("sigeo", steps), ("zico", steps)) for steps in (first, *later)]
    pairs += [((LIGHTER, steps), ("zico", steps)) for steps in later]
    pairs += [((RANKS, steps), ("zico", steps)) for steps in (first, *later) if (RANKS, steps) in scores]
    for one, other in pairs:
        gaps = [paired_difference(scores[one], scores[other], y) for y in truths]
        yield [f"{one[0]}, {one[1]} - {other[0]}, {other[1]}", *map(interval, gaps)]


def interval(found: Estimate) -> str:
    return f"{short(found.value)} [{short(found.low)}, {short(found.high)}]"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, required=True, help="accuracies: .csv, .csv.gz or .parquet")
    asked = parser.parse_args(arguments)
    archs, scores, lacking = gathered(row for path in asked.scores for row in read_rows(path))
    table = AccuracyTable.read(asked.table)
    truths = [np.array([table.lookup(arch, target) for arch in archs]) for target in TARGETS]
    scores = with_parts(scores)
    kendalls = [f"Kendall ({target})" for target in TARGETS]
    print(f"{len(archs)} networks.")
    for why, times in lacking.most_common():
        print(f"- {times} without a score: {why}.")
    heads = ["proxy", "steps", "sd", *TARGETS, *kendalls, "SiGeo's Table 3: Spearman, Kendall"]
    print(f"\n{markdown(heads, correlations(scores, truths))}\n")
    print(markdown(["Spearman", *TARGETS], differences(scores, truths)))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
