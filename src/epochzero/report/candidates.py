"""The networks that a run looked at, one row each, and what is known of them, one column each.

A network that was looked at twice, or in several repeats, is one row. Of repeats, which draw weights and data of the
same kind anew, the column holds the first, and `repeats` all of them, for the statistics. What a proxy says on other
data, or from weights that are drawn otherwise, is a column of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from epochzero.engine import parse
from epochzero.errors import UserError
from epochzero.objectives.objective import FEEDBACK, TABLE
from epochzero.report.reading import Reader, Row
from epochzero.stats.bootstrap import Floats
from epochzero.store import Run
from epochzero.tables.columns import described

Kind = Literal["score", "cost", "truth"]
RECIPE = re.compile(r"#\d+$")
"""what the store puts behind the name of a proxy whose formula has changed"""
COSTS = {"params": "", "flops": "", "latency": "ms"}
"""what a network costs, and in what; less is better"""
DRAWN = re.compile(r"(-s\d+)?-[0-9a-f]{8,16}$")
"""what the name of a batch has behind that of its data: the seed and a hash of the content"""
ON = "@"
"""between the name of a proxy and what it was scored on"""
TRAINING, WARM_UP = "training from scratch", "warm-up"
INNER = dict.fromkeys(("latency_low", "latency_high"), "latency")
"""the ends of an interval, which are no columns of their own"""


@dataclass
class Column:
    """Something known of each network, nan where it is not."""

    name: str
    kind: Kind
    higher: bool
    """whether higher is better"""
    repeats: Floats
    """[repeats, networks]"""
    unit: str = ""

    @property
    def values(self) -> Floats:
        """[networks], of the first repeat"""
        first: Floats = self.repeats[0]
        return first

    @property
    def merits(self) -> Floats:
        """Turned so that higher is better."""
        return self.values if self.higher else -self.values


@dataclass
class Candidates:
    """All networks of a run."""

    spaces: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """in which each was looked at first"""
    columns: dict[str, Column] = field(default_factory=dict)
    whys: list[str] = field(default_factory=list)
    """why a network lacks a score; empty where it lacks none"""
    seconds: dict[str, float] = field(default_factory=dict)
    """that the scores took: by proxy, or by all that were scored together, which have one time between them"""
    around: dict[str, float] = field(default_factory=dict)
    """that was spent before and after a search"""
    evaluated: int = 0
    """steps; more than there are networks where some were looked at again"""

    def __len__(self) -> int:
        return len(self.archs)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns.values() if column.kind in kinds]

    def add(self, name: str, kind: Kind, higher: bool, values: Sequence[float] | Floats) -> None:
        """One more column, in the place of one of the same name."""
        repeats = np.asarray(values, np.float64).reshape(1, -1)
        self.columns[name] = Column(name, kind, higher, repeats, unit_of(name, kind, repeats))

    def arrange(self, first: str) -> None:
        """Put one column before the others, and of these truths before scores before costs."""
        kinds: list[Kind] = ["truth", "score", "cost"]
        self.columns = dict(
            sorted(self.columns.items(), key=lambda item: (item[0] != first, kinds.index(item[1].kind)))
        )


def candidates_of(reader: Reader, run: Run) -> Candidates:
    """What a run looked at, and what runs beside it know of the same networks."""
    candidates = _gathered(reader.rows(run))
    trained: dict[str, float] = {}
    for kinds, spent in ((("latency", "pool"), candidates.seconds), (("training",), trained)):
        _join(candidates, (row for other in reader.beside(run, *kinds) for row in reader.rows(other)), spent)
    sources = str(run.settings.get("sources"))
    for other in reader.beside(run, "warm-up"):
        took = (other.result or {}).get("seconds")
        if isinstance(took, float) and str(other.settings.get("supernet")) in sources:
            candidates.around[WARM_UP] = candidates.around.get(WARM_UP, 0.0) + took
    if trained:
        candidates.around[TRAINING] = sum(trained.values())
    return candidates


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
    """Of one network. Proxies that were scored together have equal shares of one time, and no time of their own."""
    alike: dict[float, list[str]] = {}
    for row in rows:
        alike.setdefault(row.seconds, []).append(INNER.get(_name(row), _name(row)))
    for seconds, names in alike.items():
        each = list(dict.fromkeys(names))
        name = each[0] if len(each) == 1 else f"{', '.join(each)}: scored together"
        if seconds > 0:
            spent[name] = spent.get(name, 0.0) + seconds * len(names)


class _Kind(NamedTuple):
    """What a proxy was scored on."""

    data: str
    scheme: str
    """of the weights"""
    number: int
    """counts batches of the same data and weights"""


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
        """Where the values of one more setting go: the next repeat of its kind, in each space from the first on."""
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
        """A name says as much of the kind as is needed to tell it from the others."""
        columns = {}
        for name, kinds in self._cells.items():
            data, scheme, number = (len(set(part)) > 1 for part in zip(*kinds, strict=True))
            for kind, repeats in kinds.items():
                told = [kind.data] * data + [kind.scheme] * scheme + [f"batch{kind.number + 1}"] * number
                full = f"{name}{ON}{'/'.join(told)}" if told else name
                columns[full] = _column(name, repeats, networks, full)
        return columns


def _join(candidates: Candidates, rows: Iterable[Row], spent: dict[str, float]) -> None:
    """Add what other runs know of these networks, in columns that the run does not have itself, and what it took."""
    place = {key: at for at, key in enumerate(zip(candidates.spaces, candidates.archs, strict=True))}
    cells: dict[str, dict[int, float]] = {}
    ours = (row for row in rows if (row.space, row.arch) in place)
    for _, together in groupby(ours, lambda row: (row.step, row.setting)):
        each = list(together)
        _add_seconds(spent, each)
        for row in each:
            name = _name(row)
            if row.value is not None and name not in candidates.columns and name not in INNER:
                cells.setdefault(name, {})[place[row.space, row.arch]] = row.value
    candidates.columns |= {name: _column(name, [one], len(candidates)) for name, one in cells.items()}


def _column(name: str, repeats: Sequence[dict[int, float]], networks: int, full: str = "") -> Column:
    values = np.full((len(repeats), networks), np.nan)
    for row, cells in zip(values, repeats, strict=True):
        row[list(cells)] = list(cells.values())
    kind = kind_of(name)
    return Column(full or name, kind, higher_is_better(name), values, unit_of(name, kind, values))


def kind_of(name: str) -> Kind:
    """What a column of the store is, by its name."""
    if name in COSTS:
        return "cost"
    return "truth" if name.startswith((TABLE, FEEDBACK)) else "score"


def unit_of(name: str, kind: Kind, values: Floats) -> str:
    """Of a cost, and of accuracies that are no fractions."""
    if kind != "truth":
        return COSTS.get(name, "")
    column = described(name.removeprefix(TABLE).removeprefix(FEEDBACK))
    return "%" if column.quantity == "accuracy" and np.nanmax(values, initial=0) > 1 else ""


def higher_is_better(name: str) -> bool:
    """As the proxy declares it; a cost or a loss should be low, and of an unknown name high is good."""
    if name in COSTS or name.endswith("loss"):
        return False
    try:
        return parse(name).higher_is_better
    except UserError:
        return True
