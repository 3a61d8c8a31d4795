"""Sources of scores that need no run of a network: a table, or a function of the user's.

accuracies = TableSource.read("nb201.csv.gz", space)                      # answers for table:cifar10_val_12ep
scores = TableSource.read("nb201_scores.parquet", space, pool=True)       # answers for dextr, and is the pool
task = Task(space, proxies, batch, sources=(scores, accuracies))
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from epochzero.errors import DataError, MachineError, UserError
from epochzero.objectives.objective import FEEDBACK, TABLE
from epochzero.registry import near_miss
from epochzero.tables import AccuracyTable
from epochzero.tables.keys import key_of
from epochzero.tables.table import as_number
from epochzero.types import Score

if TYPE_CHECKING:
    from epochzero.engine import Proxy
    from epochzero.executors.base import ScoredBatch
    from epochzero.spaces.base import AnySpace
    from epochzero.study.task import Task

REASONS = "reasons"
"""the column of a score table that says why cells are empty: {proxy: [status, why]} as JSON"""
UNHELD = "does not hold this network"
"""the reason for a network that a table lacks"""


class Source(Protocol):
    """Gives the scores of some proxies."""

    @property
    def name(self) -> str:
        """Takes the place of the batch in the store."""

    @property
    def candidates(self) -> Sequence[Any] | None:
        """The architectures that a search is to keep to, if any."""

    def covers(self, proxy: Proxy) -> bool:
        """True if it has scores of this proxy; UserError if it should and does not."""

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        """As an executor does, for the task's proxies."""


class TableSource:
    """A table of scores or accuracies, by architecture; isomorphic ones share their row where the space says so."""

    def __init__(self, table: AccuracyTable, space: AnySpace, name: str, pool: bool = False) -> None:
        self.table, self.space, self.name = table, space, name
        self.pool = pool
        self.archs: list[Any] = []
        self._row: dict[str, int] = {}
        for row, text in enumerate(table.archs):
            try:
                arch = space.parse(text)
            except UserError as error:
                raise DataError(f"Row {row + 1} of {table.source} is no {space.name} network: {error}") from error
            self.archs.append(arch)
            self._row.setdefault(space.text(arch), row)
        self._columns: dict[str, list[float]] = {}

    @classmethod
    def read(cls, path: str | Path, space: AnySpace, pool: bool = False) -> TableSource:
        """A file's table; it is named by its content."""
        table = AccuracyTable.read(path)
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
        return cls(table, space, f"{Path(path).name} {digest}", pool)

    @property
    def candidates(self) -> Sequence[Any] | None:
        return self.archs if self.pool else None

    def covers(self, proxy: Proxy) -> bool:
        if self.pool == proxy.name.startswith((TABLE, FEEDBACK)):
            return False
        self.check_column(proxy.text if self.pool else proxy.name.removeprefix(TABLE))
        return True

    def check_column(self, column: str) -> None:
        """UserError for a column that the table lacks."""
        columns = [name for name in self.table.columns if name != REASONS]
        if column not in columns:
            raise UserError(
                f"{self.table.source} has no column '{column}'.{near_miss(column, columns)} "
                f"It has {', '.join(columns)}."
            )

    def known(self, text: str) -> int | None:
        """The row of an architecture, or of an isomorphic one."""
        row = self._row.get(text)
        if row is None and hasattr(self.space, "key"):
            row = self._by_key.get(key_of(self.space, self.space.parse(text)))
        return row

    @cached_property
    def _by_key(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for row, arch in enumerate(self.archs):
            rows.setdefault(key_of(self.space, arch), row)
        return rows

    def value(self, text: str, column: str) -> Score:
        """The table's value for one architecture."""
        row = self.known(text)
        if row is None:
            return Score.failed(f"{self.table.source} {UNHELD}")
        value = self._numbers(column)[row]
        return Score(value) if math.isfinite(value) else self._why(row, column)

    def _numbers(self, column: str) -> list[float]:
        if column not in self._columns:
            self._columns[column] = [as_number(cell) for cell in self.table.cells(column)]
        return self._columns[column]

    def _why(self, row: int, column: str) -> Score:
        nothing = Score.failed(f"{self.table.source} has no {column} of this network")
        if REASONS not in self.table.columns:
            return nothing
        try:
            status, why = json.loads(str(self.table.cells(REASONS)[row]))[column]
        except (ValueError, KeyError, TypeError):
            return nothing
        return Score(math.nan, "degenerate" if status == "degenerate" else "failed", str(why))

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        texts = [self.space.text(arch) for arch in archs]
        return [({p.text: self.value(text, p.text.removeprefix(TABLE)) for p in task.proxies}, 0.0) for text in texts]


class Listed:
    """The networks of a table as the only candidates; their scores come from elsewhere."""

    def __init__(self, table: TableSource) -> None:
        self.name = f"among {table.name}"
        self.candidates: Sequence[Any] | None = table.archs

    def covers(self, proxy: Proxy) -> bool:
        return False

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        raise AssertionError("it covers nothing")


class Feedback:
    """A function of an architecture, such as a short training, that says how good it is; higher is better."""

    candidates: Sequence[Any] | None = None

    def __init__(self, function: Callable[[Any], float], name: str | None = None) -> None:
        self.function = function
        self.name = f"{FEEDBACK}{name or getattr(function, '__name__', type(function).__name__)}"

    def covers(self, proxy: Proxy) -> bool:
        return proxy.name == self.name

    def score(self, task: Task, archs: Sequence[Any]) -> ScoredBatch:
        return [self._timed(arch) for arch in archs]

    def _timed(self, arch: Any) -> tuple[dict[str, Score], float]:
        start = time.perf_counter()
        try:
            value = float(self.function(arch))
            score = Score(value) if math.isfinite(value) else Score.failed(f"{self.name} gave {value}")
        except (UserError, MachineError):
            raise
        except Exception as error:
            score = Score.failed(f"{self.name} raised {type(error).__name__}: {error}")
        return {self.name: score}, time.perf_counter() - start
