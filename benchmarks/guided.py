"""The search `guided` against others with equally many evaluations, on tables of accuracies with stored scores.

    python benchmarks/guided.py ../shared/data --markdown docs/guided.md
    python benchmarks/guided.py ../shared/data --evidence src/epochzero/study/methods/guided.json

Each seed draws a part of a table, in which all methods search. They are told the accuracy after a short training where
the table has one, else the final one; regret is the best final accuracy of that part minus that of the winner, the best
of the evaluated networks by what was told. `guided` never has evidence of the space that it searches. A table is one
line of `TABLES`, left out without its file; proxies that only count are counted here where they are not stored.

With --evidence nothing is searched: the correlations of the proxies with accuracy by space are written, in which each
table of a space has the same share.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from epochzero.engine import parse
from epochzero.engine.space_networks import batch_for, budgeted
from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.stored import StoredScores, read_stored
from epochzero.objectives.objective import parse_objective
from epochzero.registry import made_with, options_of, searches, spaces
from epochzero.spaces.budget import Budget
from epochzero.study.methods import guided
from epochzero.study.methods.base import Floats, Pool, Pooling
from epochzero.study.pool import PoolSpace
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.tables.table import TABLES as ENDINGS
from epochzero.types import Score


class Entry(NamedTuple):
    """A table: its name here, the spaces that its scores may have, its file, final accuracy and what is told."""

    name: str
    spaces: tuple[str, ...]
    file: str
    final: str
    told: str


TABLES = (
    Entry("nb201 cifar10", ("nb201",), "nb201", "cifar10_test", "cifar10_val_12ep"),
    Entry("nb201 cifar100", ("nb201",), "nb201", "cifar100_test", "cifar100_val_12ep"),
    Entry("nb201 imagenet16", ("nb201",), "nb201", "imagenet16_test", "imagenet16_val_12ep"),
    Entry("nb201 ninapro", ("nb201",), "nb201", "ninapro_nb360", "ninapro_nb360"),
    Entry("nb101", ("nb101",), "nb101_15k", "test_acc_108ep", "val_acc_12ep"),
    Entry("mnasnet", ("mnasnet",), "accelnb_mnasnet", "imagenet_top1", "imagenet_top1"),
    Entry(
        "transnas scene",
        ("transnas_micro_scene", "transnas_micro"),
        "transnas_micro_scene_half",
        *2 * ["class_scene_val_acc"],
    ),
    Entry("darts", ("darts",), "darts_500", "cifar10_val_acc", "cifar10_val_acc"),
    Entry("autoformer imagenet", ("autoformer_tiny",), "autoformer_vitbench_100", *2 * ["imagenet_supernet"]),
    Entry("autoformer cifar100", ("autoformer_tiny",), "autoformer_vitbench_100", "cifar100", "cifar100"),
    Entry("timm", ("published",), "timm_imagenet_165", "top1", "top1"),
)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "REA": ("evolution", {"population": 6, "tournament": 6, "batch": 1}),
    "local search": ("local_search", {"batch": 1}),
    "TPE": ("tpe", {"startup": 6}),
    "HNAS": ("hnas", {"metric": "grad"}),
    "RoBoT": ("robot", {}),
    "guided": ("guided", {}),
}
"""by name, the search and its options; populations and starts are for 20 evaluations"""
ALONE = ("flops", "dextr", "auto")
"""scores whose best networks are evaluated in their order"""
POOL = 200
"""fewest networks with scores that a search is kept to"""
SEARCHED = 60
"""fewest networks of a table that is searched; all give evidence"""
LEAST = 20
"""fewest networks of a correlation"""
COUNTED = ("params", "flops", "depth", "layers", "width", "activations")
"""proxies that run nothing"""
PART = 0.8
"""share of a table that a seed draws"""


class Table(NamedTuple):
    """The networks of a table with their scores, final accuracies and what is told."""

    entry: Entry
    space: Any
    archs: list[Any]
    scores: dict[str, Floats]
    final: Floats
    told: Floats

    @property
    def covering(self) -> dict[str, Floats]:
        """The scores that most networks have."""
        return {name: column for name, column in self.scores.items() if np.isfinite(column).mean() > 0.5}


def read(entry: Entry, folder: Path, stored: StoredScores) -> Table | None:
    """Returns the table with its scores; None without its file, or if networks can neither be looked up nor counted."""
    path = next((path for ending in ENDINGS if (path := folder / f"{entry.file}{ending}").is_file()), None)
    if path is None:
        return None
    try:
        space, rows, archs, scores = scored(entry.spaces, path, stored)
    except UserError as error:
        print(f"{entry.name}: {error}", file=sys.stderr)
        return None
    table = AccuracyTable.read(path)
    final, told = (np.array([number(table.cells(column)[row]) for row in rows]) for column in (entry.final, entry.told))
    there = np.flatnonzero(np.isfinite(final + told))
    kept = {name: column[there] for name, column in scores.items()}
    return Table(entry, space, [archs[i] for i in there], kept, final[there], told[there])


@cache
def scored(
    names: tuple[str, ...], path: Path, stored: StoredScores
) -> tuple[Any, list[int], list[Any], dict[str, Floats]]:
    """Returns the space, the rows to search, their architectures and their scores, nan where none is stored.

    These are the networks with the most scores or, if they are too few for a pool and the others can be counted, all.
    """
    name = next((name for name in names if name in stored.spaces), names[-1])
    space = spaces[name]
    archs = [space.parse(text) for text in AccuracyTable.read(path).archs]
    texts = [space.text(arch) for arch in archs]
    known: dict[str, Mapping[str, Score]] = {}
    for proxy, repeats in stored.of(name).items():
        by = max(repeats.values(), key=len)
        known[proxy] = (
            by if by.keys() >= set(texts) else {space.text(space.parse(text)): one for text, one in by.items()}
        )
    most = max(map(len, known.values()), default=0)
    rows = [i for i, text in enumerate(texts) if known and all(text in by for by in known.values() if len(by) == most)]
    scores: dict[str, Floats] = {}
    for kept in (rows, range(len(texts))) if len(rows) < POOL else (rows,):
        own = {
            proxy: np.array([by[texts[i]].value if texts[i] in by else math.nan for i in kept])
            for proxy, by in known.items()
        }
        lacking = [parse(one) for one in COUNTED if one not in own or np.isnan(own[one]).any()]
        try:
            if lacking and len(kept):
                found = Task(space, lacking, batch_for(space, size=1)).score([archs[i] for i in kept])
                own |= {proxy.name: np.array([one[proxy.name].value for one, _ in found]) for proxy in lacking}
        except UserError:  # such as models of timm where it is not installed: what is stored remains
            if kept is not rows or len(rows) < LEAST:
                continue
        rows, scores = list(kept), own
    if not rows:
        raise UserError(f"no network of {path.name} has stored scores or can be counted")
    return space, rows, [archs[i] for i in rows], scores


def number(cell: object) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


class InOrder:
    """The networks in the order of a score."""

    batch = 1

    def __init__(self, pool: Pool, text: str) -> None:
        objective = parse_objective(text)
        none = np.full(len(pool.archs), math.nan)
        columns = {proxy.text: pool.values.get(proxy.text, none) for proxy in objective.proxies}
        rows = [{name: score_of(column[i]) for name, column in columns.items()} for i in range(len(pool.archs))]
        merits = [-math.inf if merit is None else merit for merit in objective.merits(rows)]
        self.waiting = [pool.archs[i] for i in np.argsort(merits, kind="stable")]

    def ask(self, n: int) -> list[Any]:
        return [self.waiting.pop() for _ in range(min(n, len(self.waiting)))]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """Nothing is learnt."""


def score_of(value: float) -> Score:
    return Score(float(value)) if math.isfinite(value) else Score.degenerate("no score")


Maker = Callable[[Any, int, Pool], Any]
"""a search from a space, a seed and a pool"""


def makers(table: Table) -> dict[str, Maker]:
    """Returns by name how to make each search that this table has the scores for."""
    made = {name: maker_of(table, method, options) for name, (method, options) in METHODS.items()}
    for text in ALONE:
        there = [proxy.text in table.covering for proxy in parse_objective(text).proxies]
        if all(there):
            made[f"`{text}` alone"] = _in_order(text)
        elif text == "auto" and any(there):  # FLOPs stand in for the others
            made[f"counts of `{text}` alone"] = _in_order(text)
    return {name: maker for name, maker in made.items() if maker is not None}


def maker_of(table: Table, method: str, options: dict[str, Any]) -> Maker | None:
    search: Any = searches[method]
    if not isinstance(search, Pooling):
        return lambda space, seed, pool: made_with(options, search, space, seed)
    wanted = search.wants(options_of(searches[method]) | options)
    names = [name for name in wanted.proxies if name in table.covering]
    if not names or (wanted.needed and len(names) < len(wanted.proxies)):
        return None
    own = {"without": space_of(table)} if method == "guided" else {}

    def make(space: Any, seed: int, pool: Pool) -> Any:
        kept = {name: pool.values[name] for name in names}
        return made_with(options | own, searches[method], space, seed, Pool(pool.archs, kept, pool.better))

    return make


def _in_order(text: str) -> Maker:
    return lambda space, seed, pool: InOrder(pool, text)


def space_of(table: Table) -> str:
    return table.entry.name.split()[0]


def searched(table: Table, make: Maker, seed: int, evaluations: int) -> float:
    """Returns the regret of one search; UserError where the space does not suit the method."""
    order = list(range(len(table.archs)))
    Random(seed).shuffle(order)
    part = order[: math.ceil(PART * len(order))]
    archs = [table.archs[i] for i in part]
    final, told = table.final[part], table.told[part]
    place = {arch: i for i, arch in enumerate(archs)}
    pool = Pool(archs, {name: column[part] for name, column in table.covering.items()}, {})
    whole = budgeted(table.space, Budget(), batch_for(table.space, size=1))
    search = make(PoolSpace(whole, archs, table.entry.file), seed, pool)
    asked: list[int] = []
    while len(asked) < evaluations and (new := search.ask(min(search.batch, evaluations - len(asked)))):
        asked += [place[arch] for arch in new]
        search.tell(new, [float(told[place[arch]]) for arch in new])
    return float(final.max() - final[max(asked, key=lambda i: told[i])])


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Estimate:
        middle, n = mean(values), len(values)
        half = float(student.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        return Estimate(middle, middle - half, middle + half)


def correlations(tables: Sequence[Table]) -> dict[str, dict[str, float]]:
    """Returns by space and proxy the correlation of normal scores with those of accuracy, the mean over its tables."""
    found: dict[str, dict[str, list[float]]] = {}
    for table in tables:
        for name, column in table.scores.items():
            there = np.isfinite(column)
            if there.sum() >= LEAST and len(np.unique(column[there])) > 1:
                value = np.mean(guided.unit_scores(column[there]) * guided.unit_scores(table.final[there]))
                found.setdefault(space_of(table), {}).setdefault(name, []).append(float(value))
    return {space: {name: round(mean(values), 3) for name, values in sorted(by.items())} for space, by in found.items()}


class Row(NamedTuple):
    """The regrets of a method on a table, by seed."""

    method: str
    regrets: list[float]

    @property
    def estimate(self) -> Estimate:
        return Estimate.of(self.regrets)


def measured(table: Table, methods: Sequence[str] | None, seeds: int, evaluations: int) -> list[Row]:
    """Returns a row for each method that suits the table, guided last."""
    rows = []
    for name, make in sorted(makers(table).items(), key=lambda named: named[0] == "guided"):
        if methods is None or name in ("random", *methods):
            try:
                rows.append(Row(name, [searched(table, make, seed, evaluations) for seed in range(seeds)]))
            except UserError as error:
                print(f"{table.entry.name}, {name}: {error}", file=sys.stderr)
    return rows


def figure(value: Estimate, decimals: int) -> str:
    if math.isinf(value.low):
        return f"{value.value:.{decimals}f}"
    return f"{value.value:.{decimals}f} [{max(value.low, 0):.{decimals}f}, {value.high:.{decimals}f}]"


PAGE = """# Search with few evaluations

Regret of searches that evaluate {evaluations} networks of a table: the best final accuracy of the networks that a seed
draws (80 %) minus that of the winner, in percentage points, of nb101 as a fraction. Means of {seeds} seeds with 95 %
intervals (Student's t). *told* is what a search is told of a network: its accuracy after 12 epochs, or the final one.
**+**: `guided` is significantly better in pairs of seeds; **−**: worse.

`guided` has no evidence of the space that it searches (option `without`). HNAS has the metric grad_norm, REA a
population of 6, TPE starts with 6 networks; *alone*: the best {evaluations} by one score. Where a table has no stored
scores yet, `guided` has counts of parameters, FLOPs, layers, depth, width and activations alone, and methods that need
more are missing; of `auto`, its counts with FLOPs for the rest. A neighbour of a network is often not in a table of few
networks; local search and REA then draw another one.

Only the evidence leaves a space out; [constants chosen without the space](guided-constants.md) do about as well. The
constants of `guided`, its first two steps and its list of proxies were chosen
on these same tables, among some 200 variants, so that its own figures are optimistic. Seeds draw overlapping parts of
one table: intervals do not cover other tables, and there are many comparisons, without correction.

```text
{command}
```

{table}

Last row: each method's regret as a share of that of random search; the mean over spaces, whose number is in
parentheses, in which the tables of a space have equal shares.
"""


def page(found: Mapping[str, list[Row]], tables: Sequence[Table]) -> str:
    """Returns the regrets as a table of Markdown, and those in proportion to random's."""
    names = list(dict.fromkeys(row.method for rows in found.values() for row in rows if row.method != "guided"))
    names += ["guided"] * any(row.method == "guided" for rows in found.values() for row in rows)
    by = {table: {row.method: row for row in rows} for table, rows in found.items()}
    lines = [f"| | networks | told | {' | '.join(names)} |", f"| --- | --- | --- |{' --- |' * len(names)}"]
    for table in tables:
        rows, entry = by[table.entry.name], table.entry
        decimals = 3 if rows["random"].estimate.value < 0.5 else 2
        cells = [_cell(rows, name, decimals) for name in names]
        told = "final" if entry.told == entry.final else "12 epochs"
        lines.append(f"| {entry.name} | {len(table.archs):,} | {told} | {' | '.join(cells)} |")
    shares = {name: shares_of(by, name) for name in names}
    means = [f"{figure(Estimate.of(list(own.values())), 2)} ({len(own)})" for own in shares.values()]
    return "\n".join([*lines, f"| **share of random's** | | | {' | '.join(means)} |"])


def shares_of(by: Mapping[str, Mapping[str, Row]], name: str) -> dict[str, float]:
    """Returns a method's regret as a share of random's by space, the mean over its tables."""
    found: dict[str, list[float]] = {}
    for table, rows in by.items():
        if name in rows:
            found.setdefault(table.split()[0], []).append(rows[name].estimate.value / rows["random"].estimate.value)
    return {space: mean(values) for space, values in found.items()}


def _cell(rows: Mapping[str, Row], name: str, decimals: int) -> str:
    """One figure, with a sign where guided is significantly better (+) or worse (-) in pairs of seeds."""
    if name not in rows:
        return ""
    sign = ""
    if name != "guided" and "guided" in rows:
        pairs = zip(rows[name].regrets, rows["guided"].regrets, strict=True)
        difference = Estimate.of([other - own for other, own in pairs])
        sign = " +" if difference.low > 0 else " −" if difference.high < 0 else ""
    return figure(rows[name].estimate, decimals) + sign


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="accuracy tables")
    parser.add_argument("--scores", type=Path, nargs="+", default=[Path("docs/data")])
    parser.add_argument("--only", help="names of tables, separated by commas")
    parser.add_argument("--methods", help="names of methods, separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--evidence", type=Path, help="file to write correlations to")
    parser.add_argument("--markdown", type=Path, help="page to write")
    given = parser.parse_args()
    stored = read_stored(given.scores)
    entries = [entry for entry in TABLES if given.only is None or entry.name in given.only.split(",")]
    tables = [table for entry in entries if (table := read(entry, given.folder, stored)) is not None]
    if given.evidence is not None:
        given.evidence.write_text(json.dumps(correlations(tables), indent=1) + "\n", encoding="utf-8")
        return
    tables = [table for table in tables if len(table.archs) >= SEARCHED]
    found = {}
    for table in tables:
        rows = measured(table, given.methods and given.methods.split(","), given.seeds, given.evaluations)
        if rows:
            found[table.entry.name] = rows
        for row in rows:
            print(f"{table.entry.name:22} {row.method:16} {figure(row.estimate, 3)}", flush=True)
    written = page(found, [table for table in tables if table.entry.name in found])
    print(written)
    if given.markdown is not None:
        command = f"python benchmarks/guided.py {shlex.join(sys.argv[1:])}"
        text = PAGE.format(evaluations=given.evaluations, seeds=given.seeds, command=command, table=written)
        given.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
