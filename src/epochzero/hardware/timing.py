r"""Latency of one batch in milliseconds: a median with its interval, or the value of a table.

The interval of n runs holds the true median with at least 95 %, whatever the distribution of the times:

    [x_(l), x_(n+1-l)]     l the largest with  P(Bin(n, 1/2) < l) <= 2.5 %
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from epochzero.study.sources import TableSource

RUNS, WARM_UP = 31, 5
TAIL = 0.025
RUNTIMES = ("torch", "onnxruntime")


class Timing(NamedTuple):
    """Milliseconds: the median, and an interval that holds it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        spread = f" [{self.low:.3g}, {self.high:.3g}]" if self.low < self.high else ""
        return f"{self.median:.3g}{spread} ms"

    @property
    def facts(self) -> dict[str, float]:
        """As JSON fields; of a table all three are what it holds."""
        return {"median_ms": self.median, "low_ms": self.low, "high_ms": self.high}


class UnmeasurableError(Exception):
    """A network that cannot be timed; the message says why."""


class Meter(Protocol):
    """Says how long a network takes."""

    instant: bool
    """True if a look-up costs nothing, so that the whole space may be looked up"""

    @property
    def name(self) -> str:
        """In the store, what stands in the place of the batch: all that a measurement depends on."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The same as JSON fields."""

    def __call__(self, arch: Any) -> Timing:
        """UnmeasurableError for a network without an answer."""


def summed_up(milliseconds: Sequence[float]) -> Timing:
    """Median and interval of several runs; of fewer than six, the interval is from the first to the last."""
    n, below, place = len(milliseconds), 0.0, 0
    while (below := below + math.comb(n, place) / 2**n) <= TAIL:
        place += 1
    ordered = sorted(milliseconds)
    return Timing(statistics.median(ordered), ordered[max(place, 1) - 1], ordered[n - max(place, 1)])


@dataclass
class TableMeter:
    """Looks latencies up, of the very network: an isomorphic one may take longer."""

    table: TableSource
    column: str
    instant: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.table.check_column(self.column)
        self._cells = dict(zip(self.table.archs, self.table.table.cells(self.column), strict=True))

    @property
    def name(self) -> str:
        return f"{self.table.name} {self.column}"

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"table": self.table.name, "column": self.column}

    def __call__(self, arch: Any) -> Timing:
        if arch not in self._cells:
            raise UnmeasurableError(f"{self.table.table.source} does not hold this network")
        try:
            milliseconds = float(self._cells[arch])
        except (TypeError, ValueError):
            milliseconds = math.nan
        if not 0 < milliseconds < math.inf:
            raise UnmeasurableError(f"{self.table.table.source} has no {self.column} of this network")
        return Timing(milliseconds, milliseconds, milliseconds)
