r"""Rank correlations of scores with known accuracies: rows of the cards' measured.csv, and tables for docs/results.md.

    python benchmarks/correlations.py scores.csv more.csv --table nb201.csv.gz --data cifar10 --machine "NVIDIA H200" \
        --also "rank(az_expressivity,az_progressivity,az_trainability,flops)" --pairs sigeo:zico,dextr:fmi \
        --measured src/epochzero/cards/measured.csv > tables.md

Scores come from `python -m epochzero.bare sweep`: columns arch, one for each proxy, reasons; or, as in docs/data, one
row for each network and proxy: arch, proxy, value, status, why. Where several files score the same network by the same
proxy, the last one counts. Rows of the same proxy, space, data and target are replaced in measured.csv; others stay.

    python benchmarks/correlations.py seed0.csv --repeat seed1.csv --repeat seed2.csv --table nb201.csv.gz \
        --data cifar10 --machine "NVIDIA H200"

Each --repeat file scores the same networks with other weights and data: figures are means over the repeats, intervals
are over networks and repeats, and +- is the standard deviation over repeats. A proxy that not every file has is
measured on those that do, and their number is given. Where params are scored, so is what is left given them.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import cast

from epochzero.engine.proxy import split_list
from epochzero.errors import DataError, UserError
from epochzero.evaluate.cards.figures import Measured, Published, published, read_measured
from epochzero.evaluate.figures import merits_of
from epochzero.objectives.objective import Objective, parse_objective, parse_objectives
from epochzero.registry import spaces
from epochzero.spaces.base import AnySpace
from epochzero.stats import Estimate, ProxyQuality, proxy_quality
from epochzero.stats.paired import paired_difference
from epochzero.tables import AccuracyTable
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
                raise DataError(f"{path} has no column {lacks}: give a file of `python -m epochzero.bare sweep`.")
            for row in rows:
                for proxy, value, status, why in _of_row(row) if columns >= COLUMNS else _of_swept(row):
                    number = float(value) if status == "ok" else math.nan
                    found.setdefault(proxy, {})[row["arch"]] = Score(number, cast(Status, status), why)
    return found


def _of_row(row: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    yield row["proxy"].partition("#")[0], row["value"], row["status"], row["why"]


def _of_swept(row: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Proxy, value, status and why, for each proxy of a row of a sweep."""
    reasons = json.loads(row["reasons"] or "{}")
    for proxy in (column for column in row if column not in SWEPT | {"scored_as"}):
        yield (proxy, row[proxy], *reasons.get(proxy, ("ok", "")))


def named_columns(text: str) -> dict[str, str]:
    """`a,b=c` as the names a and b of the columns a and c."""
    return {name: column or name for name, _, column in (part.partition("=") for part in text.split(","))}


def among(listed: set[str], scores: Scores) -> Scores:
    """The scores of these networks alone."""
    return {
        proxy: {arch: score for arch, score in of_each.items() if arch in listed} for proxy, of_each in scores.items()
    }


def merits(objective: Objective, scores: Scores) -> dict[str, Score]:
    """Each network's merit, higher is better, on the networks for which every member has a row."""
    names = [proxy.text for proxy in objective.proxies]
    for name in names:
        if name not in scores:
            raise DataError(f"There are no scores of {name}; the files have {', '.join(scores)}.")
    archs = [arch for arch in scores[names[0]] if all(arch in scores[name] for name in names)]
    found = merits_of(objective, {name: [scores[name][arch] for arch in archs] for name in names})
    return dict(zip(archs, found, strict=True))


def repeated(objective: Objective, repeats: Sequence[Scores]) -> list[dict[str, Score]]:
    """The merits in every repeat that scores all members, on the networks that all of these have."""
    names = {proxy.text for proxy in objective.proxies}
    found = [merits(objective, scores) for scores in repeats if names <= scores.keys()]
    if not found:
        return [merits(objective, repeats[0])]  # which says what is missing
    archs = [arch for arch in found[0] if all(arch in of_each for of_each in found)]
    return [{arch: of_each[arch] for arch in archs} for of_each in found]


class Truths:
    """A table's accuracies of the networks that were scored."""

    def __init__(self, table: AccuracyTable, space: AnySpace, archs: Iterable[str]) -> None:
        self._table = table
        self._row = rows_of(table, space, set(archs))

    def of(self, archs: Iterable[str], column: str) -> list[float]:
        numbers = self._table.column(column)
        return [float(numbers[self._row[arch]]) for arch in archs]


def rows_of(table: AccuracyTable, space: AnySpace, archs: set[str]) -> dict[str, int]:
    """Where each of these stands. Rows that the table writes in another way are parsed, until all are found."""
    found = {text: row for row, text in enumerate(table.archs) if text in archs}
    for row, text in enumerate(table.archs):
        if len(found) == len(archs):
            break
        try:
            own = space.text(space.parse(text))
        except UserError as error:
            raise DataError(f"Row {row + 1} of {table.source} does not fit: {error}") from error
        if own in archs:
            found.setdefault(own, row)
    if missing := archs - found.keys():
        raise DataError(f"{table.source} has no row for architecture '{min(missing)}'.")
    return found


def measure(
    objective: Objective, repeats: Sequence[Scores], truths: Truths, targets: dict[str, str]
) -> dict[str, ProxyQuality]:
    """Every figure, by target."""
    rows = repeated(objective, repeats)
    archs = list(rows[0])
    params = repeats[0].get("params", {})
    known = all(arch in params and params[arch].ok for arch in archs)
    return {
        target: proxy_quality(
            [list(row.values()) for row in rows],
            truths.of(archs, column),
            higher_is_better=True,
            params=[params[arch].value for arch in archs] if known else None,
        )
        for target, column in targets.items()
    }


def as_measured(proxy: str, target: str, quality: ProxyQuality, asked: argparse.Namespace) -> Measured:
    """A row of measured.csv."""
    assert quality.spearman is not None and quality.kendall is not None and quality.spearman_ci and quality.kendall_ci
    rho, low, high = (round(number, 4) for number in (quality.spearman, *quality.spearman_ci))
    tau, tau_low, tau_high = (round(number, 4) for number in (quality.kendall, *quality.kendall_ci))
    where, counts = (proxy, asked.space, asked.data, target), (quality.n, quality.unscored)
    how = (asked.seed, asked.machine, asked.date)
    return Measured(*where, *counts, rho, low, high, tau, tau_low, tau_high, *how)


def difference(pair: str, repeats: Sequence[Scores], truths: Truths, columns: Iterable[str]) -> str:
    """A line of Markdown: how much better the first of two orders the networks that both have scored."""
    first, _, second = pair.partition(":")
    names = {proxy.text for text in (first, second) for proxy in parse_objective(text).proxies}
    shared = [scores for scores in repeats if names <= scores.keys()] or repeats[:1]
    one, other = (repeated(parse_objective(text), shared) for text in (first, second))
    both = [arch for arch in one[0] if all(arch in row and row[arch].ok for row in (*one, *other))]
    a, b = ([[row[arch].value for arch in both] for row in rows] for rows in (one, other))
    gaps = [paired_difference(a, b, truths.of(both, column)) for column in columns]
    cells = [f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" for gap in gaps]
    return f"| {first} - {second} | {len(both)} | {' | '.join(cells)} |"


def markdown(found: dict[str, dict[str, ProxyQuality]], targets: Sequence[str], space: str, repeats: int) -> str:
    """One line for each proxy: ours on each target, what is left given params, and what the papers print."""
    size = any("spearman|params" in quality.figures for of_each in found.values() for quality in of_each.values())
    head = ["proxy", *(["repeats"] if repeats > 1 else []), "n", "no score"]
    head += [*targets, *(f"Kendall ({target})" for target in targets)]
    head += [*([f"{targets[0]} given params"] if size else []), "papers' Spearman"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for proxy, by_target in found.items():
        some = by_target[targets[0]]
        cells = [proxy, *([str(some.repeats)] if repeats > 1 else []), str(some.n), str(some.unscored)]
        for statistic in ("spearman", "kendall"):
            cells += [_interval(by_target[target].figures[statistic].estimate) for target in targets]
        if size:
            left = some.figures.get("spearman|params")
            cells.append(_interval(left.estimate if left else None))
        lines.append(f"| {' | '.join([*cells, _papers(proxy, space, targets)])} |")
    return "\n".join(lines)


def apart(found: dict[str, dict[str, ProxyQuality]], space: str) -> Iterator[str]:
    """A line for each proxy and source whose figures lie outside of our intervals."""
    for proxy, by_target in found.items():
        outside: dict[str, list[str]] = {}
        for row in published():
            for target, quality in by_target.items():
                ours = quality.figures[row.statistic].estimate if _is_of(row, proxy, space, target) else None
                if ours is not None and not ours.low <= row.value <= ours.high:
                    what = f"{target} {row.statistic} {_interval(ours)}, paper {_short(row.value, 2)}"
                    outside.setdefault(row.source, []).append(what)
        for source, figures in outside.items():
            yield f"- `{proxy}` ({source}): {'; '.join(figures)}."


def _is_of(row: Published, proxy: str, space: str, target: str) -> bool:
    """True if a paper prints this for networks as they were drawn, not of some that were warmed up first."""
    printed = (_whatever_repeats(row.proxy), row.space, row.target)
    asked = (_whatever_repeats(proxy), space, target.split("_", maxsplit=1)[0])
    return printed == asked and "warm-up" not in row.source


@cache
def _whatever_repeats(text: str) -> str:
    """`swap_reg(repeats=8)` as `swap_reg`: the same figure, averaged over fewer draws."""
    objective = parse_objective(text)
    members = (
        replace(one, settings={key: value for key, value in one.settings.items() if key != "repeats"})
        for one in objective.proxies
    )
    return replace(objective, proxies=tuple(members)).text


def _papers(proxy: str, space: str, targets: Sequence[str]) -> str:
    """`.90/.91/.87 (Dextr Table 1)` for each source."""
    by_source: dict[str, dict[str, float]] = {}
    for row in published():
        for target in targets:
            if row.statistic == "spearman" and _is_of(row, proxy, space, target):
                by_source.setdefault(row.source, {})[target] = row.value
    shown = []
    for source, values in by_source.items():
        numbers = (values.get(target) for target in targets)
        shown.append(f"{'/'.join('-' if v is None else _short(v, 2) for v in numbers)} ({source})")
    return ", ".join(shown)


def _interval(found: Estimate | None) -> str:
    if found is None:
        return ""
    spread = "" if found.spread is None else f" ±{_short(found.spread)}"
    return f"{_short(found.value)} [{_short(found.low)}, {_short(found.high)}]{spread}"


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
    parser.add_argument("--data", required=True, help="the data that proxies were scored on, e.g. cifar10")
    parser.add_argument("--seed", type=int, default=0, help="of the scores' weights")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--date", default=datetime.datetime.now(datetime.UTC).date().isoformat())
    parser.add_argument("--also", default="", help="combinations of the scored proxies, e.g. rank(dextr,zico)")
    parser.add_argument("--pairs", default="", help="paired differences, e.g. sigeo:zico,dextr:fmi")
    parser.add_argument("--measured", type=Path, help="the measured.csv to bring up to date")
    parser.add_argument("--repeat", type=Path, action="append", default=[], help="scores with other weights and data")
    parser.add_argument("--among", type=Path, help="only the networks that this table lists too")
    asked = parser.parse_args()
    if asked.repeat and asked.measured:
        raise UserError("A row of measured.csv is of one seed: leave out --measured or --repeat.")
    targets = list(asked.targets)
    repeats = [read_scores(asked.scores), *(read_scores([path]) for path in asked.repeat)]
    if asked.among:
        listed = set(AccuracyTable.read(asked.among).archs)
        repeats = [among(listed, scores) for scores in repeats]
    scored = {arch for scores in repeats for of_proxy in scores.values() for arch in of_proxy}
    truths = Truths(AccuracyTable.read(asked.table), spaces[asked.space], scored)
    names = dict.fromkeys(name for scores in repeats for name in scores)
    objectives = [parse_objective(name) for name in names] + (parse_objectives(asked.also) if asked.also else [])
    found: dict[str, dict[str, ProxyQuality]] = {}
    for objective in objectives:
        by_target = measure(objective, repeats, truths, asked.targets)
        if all(quality.spearman is not None for quality in by_target.values()):
            found[objective.text] = by_target
        for target, quality in by_target.items():
            if quality.spearman is None:
                print(f"- `{objective.text}` has no correlation with {target}: {quality.why}.")
    print(f"\n{markdown(found, targets, asked.space, len(repeats))}")
    for text, by_target in found.items():
        for why, times in by_target[targets[0]].unscored_why.items():
            print(f"- `{text}`: {times} without a score: {why}.")
    if asked.pairs:
        print(f"\n| Spearman | n | {' | '.join(targets)} |\n{'|---' * (len(targets) + 2)}|")
        print("\n".join(difference(pair, repeats, truths, asked.targets.values()) for pair in split_list(asked.pairs)))
    if lines := list(apart(found, asked.space)):
        print("\nOutside of the interval:\n")
        print("\n".join(lines))
    if asked.measured:
        rows = [as_measured(text, target, of, asked) for text, each in found.items() for target, of in each.items()]
        replace_rows(asked.measured, rows)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
