"""The networks that a run looked at, one row each, and what is known of them, one column each.

A network that was looked at twice, or in several repeats, is one row. Of repeats the column holds the first, and
`repeats` all of them, for the statistics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from epochzero.combine.objective import FEEDBACK, TABLE
from epochzero.engine import parse
from epochzero.errors import UserError
from epochzero.report.reading import Reader, Row
from epochzero.stats.bootstrap import Floats
from epochzero.store import Run

Kind = Literal["score", "cost", "truth"]
RECIPE = re.compile(r"#\d+$")
"""what the store puts behind the name of a proxy whose formula has changed"""
COSTS = {"params": "", "flops": "", "latency": "ms"}
"""what a network costs, and in what; less is better"""
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
    """that the scores took, by proxy"""
    evaluated: int = 0
    """steps; more than there are networks where some were looked at again"""

    def __len__(self) -> int:
        return len(self.archs)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns.values() if column.kind in kinds]

    def add(self, name: str, kind: Kind, higher: bool, values: Sequence[float] | Floats, unit: str = "") -> None:
        """One more column, in the place of one of the same name."""
        self.columns[name] = Column(name, kind, higher, np.asarray(values, np.float64).reshape(1, -1), unit)

    def arrange(self, first: str) -> None:
        """Put one column before the others, and of these truths before scores before costs."""
        kinds: list[Kind] = ["truth", "score", "cost"]
        self.columns = dict(
            sorted(self.columns.items(), key=lambda item: (item[0] != first, kinds.index(item[1].kind)))
        )


def candidates_of(reader: Reader, run: Run) -> Candidates:
    """What a run looked at, and what runs beside it know of the same networks."""
    found = _gathered(reader.rows(run))
    beside = [other for other in reader.runs if other.kind in ("latency", "pool", "training") and other.id != run.id]
    _join(found, (row for other in beside for row in reader.rows(other)))
    return found


def _gathered(rows: Iterable[Row]) -> Candidates:
    found = Candidates()
    place: dict[tuple[str, str], int] = {}
    order: dict[tuple[str, str], dict[int, int]] = {}
    cells: dict[str, list[dict[int, float]]] = {}
    """by column and repeat: place to value"""
    last = -1
    for row in rows:
        found.evaluated, last = found.evaluated + (row.step > last), max(last, row.step)
        at = place.setdefault((row.space, row.arch), len(place))
        if at == len(found.archs):
            found.spaces.append(row.space)
            found.archs.append(row.arch)
            found.steps.append(row.step)
            found.whys.append("")
        name = RECIPE.sub("", row.proxy)
        found.seconds[name] = found.seconds.get(name, 0.0) + row.seconds
        if row.value is None and not found.whys[at]:
            found.whys[at] = f"{name} {row.status}: {row.why}"
        settings = order.setdefault((name, row.space), {})
        repeat = settings.setdefault(row.setting, len(settings))
        repeats = cells.setdefault(name, [])
        while len(repeats) <= repeat:
            repeats.append({})
        if row.value is not None:
            repeats[repeat][at] = row.value
    found.columns = {name: _column(name, repeats, len(found)) for name, repeats in cells.items()}
    return found


def _join(found: Candidates, rows: Iterable[Row]) -> None:
    """Add what other runs know of these networks, in columns that the run does not have itself."""
    place = {key: at for at, key in enumerate(zip(found.spaces, found.archs, strict=True))}
    cells: dict[str, dict[int, float]] = {}
    for row in rows:
        name, at = RECIPE.sub("", row.proxy), place.get((row.space, row.arch))
        if at is None:
            continue
        part = INNER.get(name, name)
        found.seconds[part] = found.seconds.get(part, 0.0) + row.seconds
        if row.value is not None and name not in found.columns and name not in INNER:
            cells.setdefault(name, {})[at] = row.value
    found.columns |= {name: _column(name, [one], len(found)) for name, one in cells.items()}


def _column(name: str, repeats: Sequence[dict[int, float]], networks: int) -> Column:
    values = np.full((len(repeats), networks), np.nan)
    for row, cells in zip(values, repeats, strict=True):
        row[list(cells)] = list(cells.values())
    return Column(name, kind_of(name), higher_is_better(name), values, COSTS.get(name, ""))


def kind_of(name: str) -> Kind:
    """What a column of the store is, by its name."""
    if name in COSTS:
        return "cost"
    return "truth" if name.startswith((TABLE, FEEDBACK)) else "score"


def higher_is_better(name: str) -> bool:
    """As the proxy declares it; a cost or a loss should be low, and of an unknown name high is good."""
    if name in COSTS or name.endswith("loss"):
        return False
    try:
        return parse(name).higher_is_better
    except UserError:
        return True
