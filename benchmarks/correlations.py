r"""Rank correlations of scores with known accuracies: rows of the cards' measured.csv, and tables for docs/results.md.

    python benchmarks/correlations.py scores.csv more.csv --table nb201.csv.gz --data cifar10 --machine "NVIDIA H200" \
        --also "rank(az_expressivity,az_progressivity,az_trainability,flops)" --pairs sigeo:zico,dextr:fmi \
        --measured src/epochzero/cards/measured.csv > tables.md

Scores come from `python -m epochzero.run.sweep`: columns arch, one for each proxy, reasons; or, as in docs/data, one
row for each network and proxy: arch, proxy, value, status, why. Where several files score the same network by the same
proxy, the last one counts. Rows of the same proxy, space, data and target are replaced in measured.csv; others stay.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import cast

from epochzero.benchmarks import AccuracyTable
from epochzero.cards.figures import Measured, published, read_measured
from epochzero.combine.objective import Objective, parse_objective, parse_objectives
from epochzero.engine.proxy import split_list
from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.stats import proxy_quality
from epochzero.stats.paired import paired_difference
from epochzero.types import Score, Status

COLUMNS = {"arch", "proxy", "value", "status", "why"}
SWEPT = {"arch", "reasons"}
Scores = dict[str, dict[str, Score]]
"""proxy to architecture to score"""


def read_scores(files: Sequence[Path]) -> Scores:
    """The scores of all files together."""
    found: Scores = {}
    for path in files:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            columns = set(rows.fieldnames or ())
            if not (columns >= COLUMNS or columns >= SWEPT):
                lacks = ", ".join(sorted(SWEPT - columns))
                raise DataError(f"{path} has no column {lacks}: give a file of `python -m epochzero.run.sweep`.")
            for row in rows:
                for proxy, value, status, why in _of_row(row) if columns >= COLUMNS else _of_swept(row):
                    number = float(value) if status == "ok" else math.nan
                    found.setdefault(proxy, {})[row["arch"]] = Score(number, cast(Status, status), why)
    return found


def _of_row(row: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    yield row["proxy"], row["value"], row["status"], row["why"]


def _of_swept(row: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Proxy, value, status and why, for each proxy of a row of a sweep."""
    reasons = json.loads(row["reasons"] or "{}")
    for proxy in (column for column in row if column not in SWEPT | {"scored_as"}):
        yield (proxy, row[proxy], *reasons.get(proxy, ("ok", "")))


def named_columns(text: str) -> dict[str, str]:
    """`a,b=c` as the names a and b of the columns a and c."""
    return {name: column or name for name, _, column in (part.partition("=") for part in text.split(","))}


def merits(objective: Objective, scores: Scores) -> dict[str, Score]:
    """Each network's merit, higher is better, on the networks for which every member has a row."""
    names = [proxy.text for proxy in objective.proxies]
    for name in names:
        if name not in scores:
            raise DataError(f"There are no scores of {name}; the files have {', '.join(scores)}.")
    archs = [arch for arch in scores[names[0]] if all(arch in scores[name] for name in names)]
    networks = [{name: scores[name][arch] for name in names} for arch in archs]
    values = objective.merits(networks)
    return {
        arch: Score.degenerate(objective.why_not(network)) if value is None else Score(value)
        for arch, network, value in zip(archs, networks, values, strict=True)
    }


def measure(objective: Objective, scores: Scores, truths: AccuracyTable, asked: argparse.Namespace) -> list[Measured]:
    """One row for each target."""
    of_each = merits(objective, scores)
    rows = []
    for target, column in asked.targets.items():
        truth = [truths.lookup(arch, column) for arch in of_each]
        quality = proxy_quality(list(of_each.values()), truth, higher_is_better=True)
        if quality.spearman is None or quality.kendall is None or not (quality.spearman_ci and quality.kendall_ci):
            print(f"- `{objective.text}` has no correlation with {target}: {quality.why}.")
            continue
        rho, low, high = (round(number, 4) for number in (quality.spearman, *quality.spearman_ci))
        tau, tau_low, tau_high = (round(number, 4) for number in (quality.kendall, *quality.kendall_ci))
        where, counts = (objective.text, asked.space, asked.data, target), (quality.n, quality.unscored)
        how = (asked.seed, asked.machine, asked.date)
        rows.append(Measured(*where, *counts, rho, low, high, tau, tau_low, tau_high, *how))
    return rows


def difference(pair: str, scores: Scores, truths: AccuracyTable, columns: Iterable[str]) -> str:
    """A line of Markdown: how much better the first of two orders the networks that both have scored."""
    first, _, second = pair.partition(":")
    one, other = (merits(parse_objective(text), scores) for text in (first, second))
    both = [arch for arch, score in one.items() if score.ok and arch in other and other[arch].ok]
    cells = []
    for column in columns:
        truth = [truths.lookup(arch, column) for arch in both]
        gap = paired_difference([one[arch].value for arch in both], [other[arch].value for arch in both], truth)
        cells.append(f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
    return f"| {first} - {second} | {len(both)} | {' | '.join(cells)} |"


def markdown(rows: Sequence[Measured], targets: Sequence[str]) -> str:
    """One line for each proxy: ours on each target, and what the papers print."""
    head = ["proxy", "n", "no score", *targets, *(f"Kendall ({target})" for target in targets), "papers' Spearman"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    by_proxy: dict[str, dict[str, Measured]] = {}
    for row in rows:
        by_proxy.setdefault(row.proxy, {})[row.target] = row
    for proxy, found in by_proxy.items():
        some = next(iter(found.values()))
        ours = [found[target] for target in targets if target in found]
        cells = [proxy, str(some.n), str(some.unscored)]
        cells += [_interval(row.spearman, row.low, row.high) for row in ours]
        cells += [_interval(row.kendall, row.kendall_low, row.kendall_high) for row in ours]
        lines.append(f"| {' | '.join([*cells, _papers(proxy, some.space, targets)])} |")
    return "\n".join(lines)


def _papers(proxy: str, space: str, targets: Sequence[str]) -> str:
    """`.90/.91/.87 (Dextr Table 1)` for each source; not those of networks that were warmed up first."""
    by_source: dict[str, dict[str, float]] = {}
    for row in published():
        if (row.proxy, row.space, row.statistic) == (proxy, space, "spearman") and "warm-up" not in row.source:
            by_source.setdefault(row.source, {})[row.target] = row.value
    shown = []
    for source, values in by_source.items():
        numbers = (values.get(target.split("_")[0]) for target in targets)
        shown.append(f"{'/'.join('-' if v is None else _short(v, 2) for v in numbers)} ({source})")
    return ", ".join(shown)


def _interval(value: float, low: float, high: float) -> str:
    return f"{_short(value)} [{_short(low)}, {_short(high)}]"


def _short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def replace_rows(path: Path, rows: Sequence[Measured]) -> None:
    """Write these rows into the file in place of those of the same proxy, space, data and target."""

    def key(row: Measured) -> tuple[str, str, str, str]:
        return (row.proxy, row.space, row.data, row.target)

    kept = {key(row): row for row in (read_measured(path) if path.exists() else ())}
    kept |= {key(row): row for row in rows}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measured)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(kept[each]) for each in sorted(kept, key=lambda each: each[:3]))


def main() -> None:
    """Print the tables, and write measured.csv where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, required=True, help="accuracies: .csv, .csv.gz or .parquet")
    parser.add_argument(
        "--targets",
        type=named_columns,
        default="cifar10_test,cifar100_test,imagenet16_test",
        help="columns of the table, or name=column",
    )
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--data", required=True, help="what the proxies looked at, e.g. cifar10")
    parser.add_argument("--seed", type=int, default=0, help="of the scores' weights")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--date", default=datetime.datetime.now(datetime.UTC).date().isoformat())
    parser.add_argument("--also", default="", help="combinations of the scored proxies, e.g. rank(dextr,zico)")
    parser.add_argument("--pairs", default="", help="paired differences, e.g. sigeo:zico,dextr:fmi")
    parser.add_argument("--measured", type=Path, help="the measured.csv to bring up to date")
    asked = parser.parse_args()
    targets = list(asked.targets)
    space = spaces[asked.space]
    truths = AccuracyTable.read(asked.table).keyed_by(lambda text: space.text(space.parse(text)))
    scores = read_scores(asked.scores)
    objectives = [parse_objective(name) for name in scores] + (parse_objectives(asked.also) if asked.also else [])
    rows = [row for objective in objectives for row in measure(objective, scores, truths, asked)]
    print(markdown(rows, targets))
    for objective in objectives:
        reasons = Counter(score.why for score in merits(objective, scores).values() if not score.ok)
        for why, times in reasons.most_common():
            print(f"- `{objective.text}`: {times} without a score: {why}.")
    if asked.pairs:
        print(f"\n| Spearman | n | {' | '.join(targets)} |\n{'|---' * (len(targets) + 2)}|")
        print("\n".join(difference(pair, scores, truths, asked.targets.values()) for pair in split_list(asked.pairs)))
    if asked.measured:
        replace_rows(asked.measured, rows)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
