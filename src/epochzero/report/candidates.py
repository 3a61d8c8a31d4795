"""The networks that a run evaluated, one row each, and their scores, costs and accuracies, one column each.

A network that was evaluated twice, or in several repeats, is one row. Repeats draw new weights and data of the same
kind: the column shows the first, and `repeats` holds all of them for the statistics. Scores on other data, or from
another initialisation, are a separate column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from epochzero.engine import parse
from epochzero.errors import UserError
from epochzero.objectives.objective import FEEDBACK, TABLE
from epochzero.report.reading import Reader, Row
from epochzero.stats.bootstrap import Floats
from epochzero.store import JSON, Run
from epochzero.tables.columns import described

Kind = Literal["score", "cost", "truth"]
RECIPE = re.compile(r"#\d+$")
"""the suffix in the store of a proxy whose formula has changed"""
NAMES = {"params": "parameters", "flops": "FLOPs"}
"""common names of some columns"""
COSTS = {"params": "", "flops": "", "latency": "ms"}
"""costs and their units; less is better"""
DRAWN = re.compile(r"(-s\d+)?-[0-9a-f]{8,16}$")
"""the suffix of a batch's name: the seed and a hash of the content"""
HASH = re.compile(r" [0-9a-f]{12}$")
"""the suffix of the name of a module that a user gave"""
ON = "@"
"""between the name of a proxy and the data it was scored on"""
TRAINING, WARM_UP = "training from scratch", "warm-up"
INNER = dict.fromkeys(("latency_low", "latency_high"), "latency")
"""the ends of an interval, which are not columns"""


@dataclass
class Column:
    """A value for each network, nan if it is unknown."""

    name: str
    kind: Kind
    higher: bool
    """true if higher is better"""
    repeats: Floats
    """[repeats, networks]"""
    unit: str = ""
    averaged: bool = False
    """true for a ranking, whose repeats are draws of weights and data"""
    ends: tuple[Floats, Floats] | None = None
    """of the interval of each value, if it was measured with one"""

    @property
    def values(self) -> Floats:
        """[networks], of the first repeat, or the mean over all of them"""
        one: Floats = self.repeats.mean(axis=0) if self.averaged else self.repeats[0]
        return one

    @property
    def merits(self) -> Floats:
        """The values with the sign for which higher is better."""
        return self.values if self.higher else -self.values


@dataclass
class Candidates:
    """All networks of a run."""

    spaces: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """of the first evaluation of each"""
    columns: dict[str, Column] = field(default_factory=dict)
    whys: list[str] = field(default_factory=list)
    """why a network lacks a score, or empty"""
    seconds: dict[str, float] = field(default_factory=dict)
    """time of the scores by proxy, or by proxies that were scored together and share one time"""
    around: dict[str, float] = field(default_factory=dict)
    """seconds spent before and after a search"""
    evaluated: int = 0
    """steps; more than networks if some were evaluated again"""

    def __len__(self) -> int:
        return len(self.archs)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns.values() if column.kind in kinds]

    def add(self, name: str, kind: Kind, higher: bool, values: Any) -> None:
        """Adds a column of values [networks] or [repeats, networks], or replaces the one of the same name."""
        repeats = np.atleast_2d(np.asarray(values, np.float64))
        self.columns[name] = Column(name, kind, higher, repeats, unit_of(name, kind, repeats))

    def arrange(self, first: str) -> None:
        """Puts one column first, and sorts the others as truths, scores, costs."""
        kinds: list[Kind] = ["truth", "score", "cost"]
        self.columns = dict(
            sorted(self.columns.items(), key=lambda item: (item[0] != first, kinds.index(item[1].kind)))
        )


def candidates_of(reader: Reader, run: Run) -> Candidates:
    """The networks that a run evaluated, with the values of related runs for the same networks."""
    candidates = _gathered(reader.rows(run))
    trained: dict[str, float] = {}
    for kinds, spent in ((("latency", "pool"), candidates.seconds), (("training",), trained)):
        _join(candidates, (row for other in reader.related(run, *kinds) for row in reader.rows(other)), spent)
    sources = str(run.settings.get("sources"))
    for other in reader.related(run, "warm-up"):
        took = (other.result or {}).get("seconds")
        if isinstance(took, float) and str(other.settings.get("supernet")) in sources:
            candidates.around[WARM_UP] = candidates.around.get(WARM_UP, 0.0) + took
    if trained:
        candidates.around[TRAINING] = sum(trained.values())
    if run.kind == "rank":
        _as_given(candidates, run.settings.get("networks"))
    return candidates


def _as_given(candidates: Candidates, named: JSON) -> None:
    """Names and numbers the networks of a ranking as they were given: in the store both have hashes."""
    plain = [HASH.sub("", arch) for arch in candidates.archs]
    place = {name: at for at, name in enumerate(named)} if isinstance(named, list) else {}
    order = sorted(range(len(plain)), key=lambda at: place.get(plain[at], len(place)))
    for step, at in enumerate(order):
        candidates.steps[at] = step
    if len(set(plain)) == len(plain):
        candidates.archs = plain


def _gathered(rows: Iterable[Row]) -> Candidates:
    candidates, columns = Candidates(), _Columns()
    place: dict[tuple[str, str], int] = {}
    last = -1
    for (step, _), together in groupby(rows, lambda row: (row.step, row.setting)):
        candidates.evaluated, last = candidates.evaluated + (step > last), max(last, step)
        each = list(together)
        _add_seconds(candidates.seconds, each)
        for row in each:
            at = place.setdefault((row.space, row.arch), len(place))
            if at == len(candidates.archs):
                candidates.spaces.append(row.space)
                candidates.archs.append(row.arch)
                candidates.steps.append(row.step)
                candidates.whys.append("")
            if row.value is None and not candidates.whys[at]:
                candidates.whys[at] = f"{_name(row)} {row.status}: {row.why}"
            columns.put(row, at)
    candidates.columns = columns.made(len(candidates))
    return candidates


def _name(row: Row) -> str:
    return RECIPE.sub("", row.proxy)


def _add_seconds(spent: dict[str, float], rows: Sequence[Row]) -> None:
    """Adds the seconds of one network; proxies that were scored together share one time equally."""
    alike: dict[float, list[str]] = {}
    for row in rows:
        alike.setdefault(row.seconds, []).append(INNER.get(_name(row), _name(row)))
    for seconds, names in alike.items():
        each = list(dict.fromkeys(names))
        name = each[0] if len(each) == 1 else f"{', '.join(each)}: scored together"
        if seconds > 0:
            spent[name] = spent.get(name, 0.0) + seconds * len(names)


class _Kind(NamedTuple):
    """The data and weights that a proxy was scored on."""

    data: str
    scheme: str
    """of the weights"""
    number: int
    """the number of the batch among those of the same data and weights"""


class _Columns:
    """Collects values by proxy, kind and repeat."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[_Kind, list[dict[int, float]]]] = {}
        """by proxy, kind and repeat: place to value"""
        self._settings: dict[tuple[str, int], dict[int, float]] = {}
        self._repeats: dict[tuple[str, str, _Kind], int] = {}
        self._batches: dict[tuple[str, str, str, str], dict[str, None]] = {}

    def put(self, row: Row, at: int) -> None:
        key = (_name(row), row.setting)
        if key not in self._settings:
            self._settings[key] = self._begun(row, key[0])
        if row.value is not None:
            self._settings[key][at] = row.value

    def _begun(self, row: Row, name: str) -> dict[int, float]:
        """The cells of a new setting: the next repeat of its kind in its space."""
        data, scheme = DRAWN.sub("", row.batch), row.origin.rpartition(":")[0]
        batches = self._batches.setdefault((name, row.space, data, row.origin), {})
        batches.setdefault(row.batch)
        kind = _Kind(data, scheme, list(batches).index(row.batch))
        repeat = self._repeats.get((name, row.space, kind), 0)
        self._repeats[name, row.space, kind] = repeat + 1
        repeats = self._cells.setdefault(name, {}).setdefault(kind, [])
        if repeat == len(repeats):
            repeats.append({})
        return repeats[repeat]

    def made(self, networks: int) -> dict[str, Column]:
        """The columns; names include as much of the kind as is needed to distinguish them."""
        columns = {}
        for name, kinds in self._cells.items():
            data, scheme, number = (len(set(part)) > 1 for part in zip(*kinds, strict=True))
            for kind, repeats in kinds.items():
                parts = [kind.data] * data + [kind.scheme] * scheme + [f"batch{kind.number + 1}"] * number
                full = f"{name}{ON}{'/'.join(parts)}" if parts else name
                columns[full] = _column(name, repeats, networks, full)
        return columns


def _join(candidates: Candidates, rows: Iterable[Row], spent: dict[str, float]) -> None:
    """Adds columns of other runs that the run itself lacks, and the time they took."""
    place = {key: at for at, key in enumerate(zip(candidates.spaces, candidates.archs, strict=True))}
    cells: dict[str, dict[int, float]] = {}
    ours = (row for row in rows if (row.space, row.arch) in place)
    for _, together in groupby(ours, lambda row: (row.step, row.setting)):
        each = list(together)
        _add_seconds(spent, each)
        for row in each:
            name = _name(row)
            if row.value is not None and name not in candidates.columns:
                cells.setdefault(name, {})[place[row.space, row.arch]] = row.value
    inner = {name: cells.pop(name) for name in INNER if name in cells}
    candidates.columns |= {name: _column(name, [one], len(candidates)) for name, one in cells.items()}
    for low, high in (INNER,):
        if (whole := candidates.columns.get(INNER[low])) is not None and {low, high} <= inner.keys():
            first, last = (_column(name, [inner[name]], len(candidates)).values for name in (low, high))
            whole.ends = first, last


def _column(name: str, repeats: Sequence[dict[int, float]], networks: int, full: str = "") -> Column:
    values = np.full((len(repeats), networks), np.nan)
    for row, cells in zip(values, repeats, strict=True):
        row[list(cells)] = list(cells.values())
    kind = kind_of(name)
    return Column(full or name, kind, higher_is_better(name), values, unit_of(name, kind, values))


def label(name: str) -> str:
    """A column's name for display."""
    short = name.removeprefix(TABLE).removeprefix(FEEDBACK)
    return NAMES.get(short, short).replace(ON, " on ")


def kind_of(name: str) -> Kind:
    """The kind of a column of the store, by its name."""
    if name in COSTS:
        return "cost"
    return "truth" if name.startswith((TABLE, FEEDBACK)) else "score"


def unit_of(name: str, kind: Kind, values: Floats) -> str:
    """The unit of a cost, or % for accuracies that are not fractions."""
    if kind != "truth":
        return COSTS.get(name, "")
    column = described(name.removeprefix(TABLE).removeprefix(FEEDBACK))
    return "%" if column.quantity == "accuracy" and np.nanmax(values, initial=0) > 1 else ""


def higher_is_better(name: str) -> bool:
    """As the proxy declares it; lower is better for costs and losses, higher for unknown names."""
    if name in COSTS or name.endswith("loss"):
        return False
    try:
        return parse(name).higher_is_better
    except UserError:
        return True
